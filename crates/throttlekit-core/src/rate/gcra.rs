//! GCRA, the token bucket and the leaky-bucket shaper: one arithmetic.
//!
//! A bucket of `capacity` units that refills at a pace is fully described by the instant at which it will be full
//! again, which GCRA calls the theoretical arrival time. A shaper is the same bucket, which also decides when the work
//! may start.

use core::num::NonZeroU32;
use core::time::Duration;

use super::pace::{LimitError, Pace, Rate, checked_period, checked_units};
use super::{DEBT_MAX, Mark, Rule, Settle, UNITS_MAX, never};
use crate::{Cost, Decision, Retry, Timestamp};

/// The continuous rule: in any interval Δ it admits at most `burst + rate·Δ` units (guarantee `rate-exact`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    pub(super) pace: Pace,
    /// Largest debt of the bucket ahead of now, in ticks: the burst, or the longest queue.
    pub(super) depth: u128,
    /// The depth in whole units: the reported limit.
    pub(super) limit: u64,
    /// `true` if an admitted request must also wait its turn.
    pub(super) shapes: bool,
}

/// The instant at which a key's bucket is full again, in ticks of its limit's pace.
///
/// A tick is the largest fraction of a nanosecond in which a unit is whole, so nothing is ever rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tat(pub u128);

impl Gcra {
    /// `rate` with its burst: smooth pace, a burst after quiet.
    pub fn new(rate: Rate) -> Result<Self, LimitError> {
        let limit = checked_units(rate.burst.unwrap_or(rate.units))?;
        let pace = Pace::of(rate)?;
        Ok(Self { pace, depth: u128::from(pace.ticks_per_unit) * u128::from(limit), limit, shapes: false })
    }

    /// A bucket of `capacity` units refilled at `refill`; the rate's own burst is ignored.
    pub fn token_bucket(capacity: u64, refill: Rate) -> Result<Self, LimitError> {
        Self::new(refill.burst(capacity))
    }

    /// A shaper: requests leave at `rate` one after another, and one that would wait beyond `max_wait` is denied. An
    /// allowed decision reports in `retry_after` how long to wait before starting.
    pub fn leaky_bucket(rate: Rate, max_wait: Duration) -> Result<Self, LimitError> {
        let pace = Pace::of(rate)?;
        let queue = if max_wait.is_zero() { 0 } else { checked_period(max_wait)? };
        let depth = u128::from(queue) * u128::from(pace.ticks_per_nano) + u128::from(pace.ticks_per_unit);
        let units = depth / u128::from(pace.ticks_per_unit);
        let limit = checked_units(u64::try_from(units).unwrap_or(u64::MAX))?;
        Ok(Self { pace, depth, limit, shapes: true })
    }

    /// The most units that ever pass at once.
    pub fn units(&self) -> u64 {
        self.limit
    }

    /// Returns how long an empty bucket takes to fill.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.nanos_ceil(self.depth))
    }

    /// Returns how many units come back in this time, started ones included.
    pub(crate) fn units_in(&self, time: Duration) -> u64 {
        let ticks = u128::from(crate::time::nanos(time)) * u128::from(self.pace.ticks_per_nano);
        u64::try_from(ticks.div_ceil(u128::from(self.pace.ticks_per_unit))).unwrap_or(u64::MAX)
    }

    /// Checks whether an admitted request must also wait its turn.
    pub(crate) fn shapes(&self) -> bool {
        self.shapes
    }

    /// The share of one of `nodes`: the rate divided by `nodes`, and the whole units of its part of the burst. A shaper
    /// has no shares, since each would assign turns that the others have assigned too.
    pub(super) fn share(&self, nodes: NonZeroU32) -> Option<Self> {
        let limit = self.limit / u64::from(nodes.get());
        let ticks_per_unit = self.pace.ticks_per_unit.checked_mul(u64::from(nodes.get()))?;
        let depth = u128::from(ticks_per_unit) * u128::from(limit);
        let share = Self { pace: Pace { ticks_per_unit, ..self.pace }, depth, limit, ..*self };
        (!self.shapes && limit > 0).then_some(share)
    }

    pub(super) fn ticks(&self, now: Timestamp) -> u128 {
        u128::from(now.as_nanos()) * u128::from(self.pace.ticks_per_nano)
    }

    /// Returns the ticks that `cost` units take out of the bucket. Cannot overflow: 2⁵³ units of at most 2⁶² ticks.
    pub(super) fn ticks_of(&self, cost: Cost) -> u128 {
        u128::from(cost) * u128::from(self.pace.ticks_per_unit)
    }

    fn nanos_ceil(&self, ticks: u128) -> u64 {
        u64::try_from(ticks.div_ceil(u128::from(self.pace.ticks_per_nano))).unwrap_or(u64::MAX)
    }

    /// The decision of a bucket that is full again at `tat`, given the wait that goes with it.
    fn answer(&self, allowed: bool, tat: u128, now: u128, wait: u128) -> Decision {
        let left = (now + self.depth).saturating_sub(tat) / u128::from(self.pace.ticks_per_unit);
        Decision {
            allowed,
            limit: self.limit,
            remaining: left as u64,
            reset_at: Timestamp::from_nanos(self.nanos_ceil(tat)),
            retry_after: Retry::after(Duration::from_nanos(self.nanos_ceil(wait))),
        }
    }
}

impl Rule for Gcra {
    type State = Tat;

    fn decide(&self, state: &Tat, cost: Cost, now: Timestamp) -> Decision {
        let now = self.ticks(now);
        let tat = state.0.max(now);
        if cost > self.limit {
            return never(self.answer(false, tat, now, 0));
        }
        let next = tat + self.ticks_of(cost);
        if next <= now + self.depth {
            let turn = if self.shapes && cost > 0 { tat - now } else { 0 };
            return self.answer(true, next, now, turn);
        }
        self.answer(false, tat, now, next - self.depth - now)
    }

    fn charge(&self, state: &mut Tat, cost: Cost, now: Timestamp) {
        if cost == 0 {
            return;
        }
        state.0 = state.0.max(self.ticks(now)) + self.ticks_of(cost);
    }

    fn idle_at(&self, state: &Tat) -> Timestamp {
        Timestamp::from_nanos(self.nanos_ceil(state.0))
    }

    fn join(&self, state: &mut Tat, other: &Tat) {
        *state = (*state).max(*other);
    }
}

impl Settle for Gcra {
    fn mark(&self, _state: &Tat, now: Timestamp) -> Mark {
        Mark(now.as_nanos())
    }

    /// Refunds what has not refilled since the charge. A shaper refunds nothing: the turns after this one are already
    /// assigned.
    ///
    /// Had the units not been charged, the bucket would be full by as much earlier, less at most the time that has
    /// passed since, during which it may have been full.
    fn refund(&self, state: &mut Tat, mark: Mark, units: Cost, now: Timestamp) {
        if self.shapes {
            return;
        }
        let latest = self.ticks(now).max(state.0.saturating_sub(self.depth));
        let elapsed = latest.saturating_sub(self.ticks(Timestamp::from_nanos(mark.0)));
        state.0 = state.0.saturating_sub(self.ticks_of(units.min(self.limit)).saturating_sub(elapsed));
    }

    fn owe(&self, state: &mut Tat, units: Cost, now: Timestamp) {
        let next = state.0.max(self.ticks(now)) + self.ticks_of(units.min(UNITS_MAX));
        state.0 = state.0.max(next.min(self.ticks(now + DEBT_MAX)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// `rate-exact` over 10⁹ admissions: after a billion units at 3/s, 7/min, 1,000,001/s and 10⁹/s the bucket
    /// stands at exactly a billion paces, to the tick. One charge of a billion stands for a billion charges of
    /// one, which the next test shows to be the same.
    #[test]
    fn rate_exact_no_drift_over_a_billion_admissions() {
        let billion = 1_000_000_000;
        for (rate, nanos) in [
            (Rate::per_second(3), 333_333_333_333_333_334),
            (Rate::per_minute(7), 8_571_428_571_428_571_429),
            (Rate::per_second(1_000_001), 999_999_000_001),
            (Rate::per_second(1_000_000_000), 1_000_000_000),
        ] {
            let gcra = Gcra::new(rate.burst(billion)).unwrap();
            let mut state = Tat::default();
            gcra.charge(&mut state, billion, Timestamp::EPOCH);
            assert_eq!(gcra.idle_at(&state), Timestamp::from_nanos(nanos), "{rate:?}");
        }
    }

    #[test]
    fn a_charge_of_n_is_n_charges_of_one() {
        let gcra = Gcra::new(Rate::per_second(1_000_001).burst(5_000)).unwrap();
        let (mut once, mut often) = (Tat::default(), Tat::default());
        let now = Timestamp::from_nanos(17);
        gcra.charge(&mut once, 4_321, now);
        for _ in 0..4_321 {
            gcra.charge(&mut often, 1, now);
        }
        assert_eq!(once, often);
    }

    #[test]
    fn a_shaper_spaces_work_and_denies_beyond_its_queue() {
        let shaper = Gcra::leaky_bucket(Rate::per_second(10), Duration::from_millis(250)).unwrap();
        let mut state = Tat::default();
        let now = Timestamp::from_nanos(SECOND);
        let waits: [_; 4] = core::array::from_fn(|_| {
            let d = shaper.check(&mut state, 1, now);
            (d.allowed, d.retry_after.wait_ms())
        });
        assert_eq!(waits, [(true, Some(0)), (true, Some(100)), (true, Some(200)), (false, Some(50))]);
    }

    #[test]
    fn a_cost_above_the_burst_can_never_pass() {
        let gcra = Gcra::new(Rate::per_second(10).burst(5)).unwrap();
        let denied = gcra.decide(&Tat::default(), 6, Timestamp::from_nanos(SECOND));
        assert_eq!((denied.allowed, denied.remaining, denied.retry_after), (false, 5, Retry::Never));
    }
}
