//! Units that a provider reported as left, until the reset.

use std::time::Duration;

use throttlekit_core::Timestamp;

use super::nanos;
use crate::outbound::reported::Quota;

/// Time for which a report without a reset holds.
const UNKNOWN_RESET: Duration = Duration::from_secs(1);

/// Units that may be used until the reset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// Position of the call that the report is about.
    position: u64,
    /// Units left when it was reported, less those of calls started since. Below zero if more were started.
    left: i64,
    limit: Option<u64>,
    /// Units that come back in a number of nanoseconds.
    refill: Option<(u64, u64)>,
    since: Timestamp,
    until: Timestamp,
}

impl Bound {
    /// Creates the bound of a report about the call at `position`, after which `started` units were used. The provider may
    /// not have counted those yet.
    pub(super) fn of(
        quota: &Quota,
        position: u64,
        started: u64,
        max: Duration,
        now: Timestamp,
    ) -> Option<Self> {
        let remaining = i64::try_from(quota.remaining?).unwrap_or(i64::MAX);
        let started = i64::try_from(started).unwrap_or(i64::MAX);
        Some(Self {
            position,
            left: remaining.saturating_sub(started),
            limit: quota.limit,
            refill: quota.refill().map(|(units, period)| (units, nanos(period).max(1))),
            since: now,
            until: now + quota.reset.unwrap_or(UNKNOWN_RESET).min(max),
        })
    }

    /// Takes a later report. One about an earlier call than this one knows less, and can only lower what is left.
    pub(super) fn then(self, later: Self, now: Timestamp) -> Self {
        let is_newer = later.position.wrapping_sub(self.position) as i64 >= 0;
        if is_newer || self.is_over(now) { later } else { Self { left: self.left.min(later.left), ..self } }
    }

    pub(super) fn start(&mut self, cost: u64) {
        self.left = self.left.saturating_sub_unsigned(cost);
    }

    pub(super) fn cancel(&mut self, cost: u64) {
        self.left = self.left.saturating_add_unsigned(cost);
    }

    /// Returns when a call of this cost may start.
    pub(super) fn ready_at(&self, cost: u64, now: Timestamp) -> Timestamp {
        let missing = i128::from(cost) - i128::from(self.left);
        if missing <= i128::from(self.refilled(now)) {
            return Timestamp::EPOCH;
        }
        let Some((units, period)) = self.refill else { return self.until };
        let missing = u128::try_from(missing).unwrap_or(0);
        let wait = missing.saturating_mul(u128::from(period)).div_ceil(u128::from(units.max(1)));
        let wait = Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX));
        (self.since + wait).min(self.until)
    }

    /// Returns the part of the limit that is left, in `whole`ths.
    pub(super) fn part_left(&self, whole: u32, now: Timestamp) -> u32 {
        let limit = self.limit.unwrap_or(0).max(1);
        let part = u128::from(self.available(now)) * u128::from(whole) / u128::from(limit);
        u32::try_from(part).unwrap_or(whole).min(whole)
    }

    /// Adapts to a clock that stepped back.
    pub(super) fn rewind(&mut self, max: Duration, now: Timestamp) {
        (self.since, self.until) = (self.since.min(now), self.until.min(now + max));
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        now >= self.until
    }

    fn available(&self, now: Timestamp) -> u64 {
        u64::try_from(self.left.saturating_add_unsigned(self.refilled(now))).unwrap_or(0)
    }

    fn refilled(&self, now: Timestamp) -> u64 {
        let Some((units, period)) = self.refill else { return 0 };
        let elapsed = u128::from(nanos(now.since(self.since)));
        u64::try_from(u128::from(units) * elapsed / u128::from(period)).unwrap_or(u64::MAX)
    }
}
