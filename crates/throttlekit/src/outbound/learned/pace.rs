//! A ceiling of which a part is in use, and the spacing of calls that keeps to that part.

use std::time::Duration;

use throttlekit_core::Timestamp;

use super::{LearnSettings, nanos};
use crate::admit::LimitInfo;
use crate::outbound::reported::Quota;

/// All of the ceiling.
pub(in crate::outbound) const WHOLE: u32 = 1 << 20;
/// The least part that refusals lower it to. A reported limit may be lower.
const GUESS_MIN: u32 = WHOLE / 64;
/// Calls may catch up on this much time.
const BURST_NANOS: u64 = 1_000_000_000;
const MINUTE_NANOS: u128 = 60_000_000_000;
/// Most time that one success counts for when it raises the part.
const RAISE_STEP_MAX: Duration = Duration::from_secs(10);
/// A limit that the provider does not report is raised this many times slower.
const GUESS_SLOWER: u32 = 10;

/// The configured ceiling of one kind of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ceiling {
    units: u64,
    period_nanos: u64,
}

/// The part of a ceiling that is in use. Never more than all of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// `None`: no limit is configured, and so there is none to lower.
    ceiling: Option<Ceiling>,
    part: u32,
    /// The part up to which it may rise: what the provider reported last, or all.
    target: u32,
    is_reported: bool,
    /// Earliest start of the next call. Used only while the part is less than all.
    next_at: Timestamp,
    /// Last time that the part was raised or lowered.
    changed_at: Timestamp,
}

impl Pace {
    /// Takes the fastest of these limits as the ceiling: slower ones, such as a daily one beside one by the minute, are not
    /// what a provider reports a lower value of.
    pub(super) fn of<'a>(limits: impl Iterator<Item = &'a LimitInfo>) -> Self {
        let known = limits.filter_map(|limit| {
            let period_nanos = nanos(limit.period?).max(1);
            (limit.units > 0).then_some(Ceiling { units: limit.units, period_nanos })
        });
        Self::new(known.reduce(|one, other| if other.is_faster(one) { other } else { one }))
    }

    fn new(ceiling: Option<Ceiling>) -> Self {
        Self {
            ceiling,
            part: WHOLE,
            target: WHOLE,
            is_reported: false,
            next_at: Timestamp::EPOCH,
            changed_at: Timestamp::EPOCH,
        }
    }

    /// Returns the same ceiling with nothing learned.
    pub(super) fn forgotten(&self) -> Self {
        Self::new(self.ceiling)
    }

    pub(super) fn part(&self) -> u32 {
        self.part
    }

    /// Returns the units in a minute, rounded.
    pub(super) fn per_minute(&self) -> Option<u64> {
        let Ceiling { units, period_nanos } = self.ceiling?;
        let parts = u128::from(units).saturating_mul(MINUTE_NANOS) * u128::from(self.part);
        let whole = u128::from(period_nanos) * u128::from(WHOLE);
        Some(u64::try_from((parts + whole / 2) / whole).unwrap_or(u64::MAX))
    }

    /// Returns the earliest start of a call.
    pub(super) fn ready_at(&self) -> Timestamp {
        if self.part < WHOLE { self.next_at } else { Timestamp::EPOCH }
    }

    /// Counts a call: the next one starts after the time that this one's units take.
    pub(super) fn start(&mut self, cost: u64, now: Timestamp) {
        if self.part < WHOLE {
            let from = self.next_at.as_nanos().max(now.as_nanos().saturating_sub(BURST_NANOS));
            self.next_at = Timestamp::from_nanos(from.saturating_add(self.time_of(cost)));
        }
    }

    /// Takes back a call that was not made.
    pub(super) fn cancel(&mut self, cost: u64) {
        if self.part < WHOLE {
            let before = self.next_at.as_nanos().saturating_sub(self.time_of(cost));
            self.next_at = Timestamp::from_nanos(before);
        }
    }

    /// Returns the nanoseconds in which the part in use gives this many units.
    fn time_of(&self, cost: u64) -> u64 {
        let Some(ceiling) = self.ceiling else { return 0 };
        let whole = u128::from(cost).saturating_mul(u128::from(ceiling.period_nanos));
        let rate = u128::from(ceiling.units) * u128::from(self.part.max(1));
        u64::try_from(whole.saturating_mul(u128::from(WHOLE)) / rate.max(1)).unwrap_or(u64::MAX)
    }

    /// Lowers the part at once to a reported limit, or remembers how far it may rise.
    pub(super) fn learn(&mut self, quota: &Quota, now: Timestamp) {
        let Some(reported) = self.ceiling.zip(quota.limit.zip(quota.period)) else { return };
        let (ceiling, (limit, period)) = reported;
        self.target = ceiling.part_of(limit, period);
        self.is_reported = true;
        if self.target < self.part {
            self.lower(self.target, now);
        }
    }

    /// Lowers the part after a refusal that does not report the limit.
    pub(super) fn guess_lower(&mut self, now: Timestamp) {
        let lower = (self.part / 8 * 7).max(GUESS_MIN);
        if self.ceiling.is_some() && lower < self.part {
            self.is_reported = false;
            self.lower(lower, now);
        }
    }

    fn lower(&mut self, part: u32, now: Timestamp) {
        (self.part, self.changed_at) = (part, now);
        self.next_at = self.next_at.max(now);
    }

    /// Delays the next call beyond a pause, so that calls do not all start at its end.
    pub(super) fn pause(&mut self, until: Timestamp) {
        self.next_at = self.next_at.max(until);
    }

    /// Adapts to a clock that stepped back.
    pub(super) fn rewind(&mut self, max: Duration, now: Timestamp) {
        (self.changed_at, self.next_at) = (self.changed_at.min(now), self.next_at.min(now + max));
    }

    /// Raises the part after a success, by the time since the last change.
    pub(super) fn raise(&mut self, settings: &LearnSettings, now: Timestamp) {
        let LearnSettings { raise_over, max_pause, .. } = *settings;
        let over = if self.is_reported { raise_over } else { raise_over.saturating_mul(GUESS_SLOWER) };
        let elapsed = now.since(self.changed_at).min(RAISE_STEP_MAX);
        self.changed_at = now;
        let step = u128::from(WHOLE) * elapsed.as_nanos() / over.as_nanos().max(1);
        let step = u32::try_from(step).unwrap_or(WHOLE);
        self.part = self.part.max(self.part.saturating_add(step).min(self.target));
        // What calls cost at a part that is no longer in use delays the next ones no longer than a pause.
        self.next_at = self.next_at.min(now + max_pause);
    }
}

impl Ceiling {
    fn is_faster(self, other: Self) -> bool {
        let rate = |one: Self, over: Self| u128::from(one.units) * u128::from(over.period_nanos);
        rate(self, other) > rate(other, self)
    }

    /// Returns the part of the ceiling that a limit is, rounded down, at most all and at least the smallest one.
    fn part_of(self, limit: u64, period: Duration) -> u32 {
        let of_ceiling = u128::from(self.units) * u128::from(nanos(period));
        let of_limit = u128::from(limit).saturating_mul(u128::from(self.period_nanos));
        let part = of_limit.saturating_mul(u128::from(WHOLE)) / of_ceiling.max(1);
        u32::try_from(part).unwrap_or(WHOLE).clamp(1, WHOLE)
    }
}
