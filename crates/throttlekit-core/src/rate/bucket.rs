//! A bucket as stores persist it, and how a limit reads one that was last charged at another pace.
//!
//! The instant at which a bucket is full again determines its use only together with the pace at which it fills. So a
//! store keeps that pace beside the instant. A limit of the same pace reads the instant as it is. A limit of another
//! pace counts the units that were used and have not come back, and no others.

use super::gcra::{Gcra, Tat};
use super::shared::{DEBT_MAX_MICROS, NANOS};
use super::{Mark, Rule, UNITS_MAX};
use crate::{Cost, Decision, Retry, Timestamp};

/// Fill rate of a bucket: a unit takes `unit` ticks to come back, and `base` ticks are a microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SharedPace {
    /// Ticks of a unit.
    pub unit: u64,
    /// Ticks of a microsecond. One where units are whole microseconds.
    pub base: u64,
}

/// A bucket as stores persist it. Instants are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// The whole microseconds of the instant when it is full again.
    pub full: u64,
    /// The ticks beyond them.
    pub rest: u64,
    /// Instant of the last write, and not after it is full.
    pub since: u64,
    /// The pace at which it was last written.
    pub pace: SharedPace,
}

impl SharedPace {
    /// Converts the refill time of units, `ticks` at this pace, to another pace: whole microseconds, rounded up.
    ///
    /// Scripts compute the same in doubles, so there are at most [`UNITS_MAX`] units and a hundred years.
    pub(super) fn time_at(self, ticks: u128, other: Self) -> u64 {
        let own = u128::from(self.unit.max(1));
        let (units, part) = match ticks / own {
            units if units > u128::from(UNITS_MAX) => (u128::from(UNITS_MAX), 0),
            units => (units, ticks % own),
        };
        let ticks = units * u128::from(other.unit) + (part * u128::from(other.unit)).div_ceil(own);
        let micros = ticks.div_ceil(u128::from(other.base.max(1)));
        u64::try_from(micros).unwrap_or(u64::MAX).min(DEBT_MAX_MICROS)
    }
}

impl Bucket {
    /// Returns how long the units in use at `at` take to come back at `pace`.
    fn debt(&self, at: u64, pace: SharedPace) -> u64 {
        if at > self.full {
            return 0;
        }
        let ticks = u128::from(self.full - at) * u128::from(self.pace.base) + u128::from(self.rest);
        self.pace.time_at(ticks, pace)
    }

    /// Returns when it is full again at `pace`, seen from `now`.
    ///
    /// Used units are replenished at the faster of both paces until the first charge at the new one. The change itself
    /// leaves no trace, since a denial writes nothing: so a faster pace counts from the last charge on, and a slower
    /// one from the next.
    pub(super) fn full_at(&self, pace: SharedPace, now: u64) -> u64 {
        let at = now.max(self.since);
        let by_old = at + self.debt(at, pace);
        let by_new = self.since + self.debt(self.since, pace);
        by_old.min(by_new.max(at))
    }

    /// The first instant at which at most `room` microseconds of `pace` are in use, while it fills at its own pace.
    fn leaves(&self, room: u64, pace: SharedPace) -> Timestamp {
        let (own, other) = (u128::from(self.pace.unit), u128::from(pace.unit.max(1)));
        let room = u128::from(room) * u128::from(pace.base);
        let ticks = room / other * own + room % other * own / other;
        let base = u128::from(self.pace.base.max(1));
        let full = u128::from(self.full) * base + u128::from(self.rest);
        let nanos = (full.saturating_sub(ticks) * u128::from(NANOS)).div_ceil(base);
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns when it is full again at its own pace.
    pub(super) fn idle_at(&self) -> Timestamp {
        Timestamp::from_micros(self.full.saturating_add(u64::from(self.rest > 0)))
    }

    /// Becomes a bucket of which at least as much is used as of both, at `now` and from then on: it fills at the slower
    /// pace.
    pub(super) fn join(&mut self, other: &Self, now: u64) {
        if self.pace == other.pace {
            let since = self.since.max(other.since);
            if (other.full, other.rest) > (self.full, self.rest) {
                *self = *other;
            }
            self.since = since.min(self.full);
            return;
        }
        let cross = |a: SharedPace, b: SharedPace| u128::from(a.unit) * u128::from(b.base);
        let is_slower = cross(self.pace, other.pace) > cross(other.pace, self.pace);
        let pace = if is_slower { self.pace } else { other.pace };
        let at = now.max(self.since).max(other.since);
        let most = self.debt(at, pace).max(other.debt(at, pace));
        *self = Self { full: at + most, rest: 0, since: at, pace };
    }
}

impl Gcra {
    /// The bucket in ticks of this limit, as it stands at `now`.
    pub(super) fn carried(&self, bucket: &Bucket, now: Timestamp) -> Tat {
        Tat(self.ticks_of_micros(bucket.full_at(self.shared_pace(), now.as_micros())))
    }

    /// [`decide`](Rule::decide) on a bucket of another pace.
    pub(super) fn decide_carried(&self, bucket: &Bucket, cost: Cost, now: Timestamp) -> Decision {
        let decision = self.decide(&self.carried(bucket, now), cost, now);
        if decision.allowed && cost > 0 {
            return decision;
        }
        // Nothing is charged, so it goes on filling at the faster pace.
        let reset_at = decision.reset_at.min(bucket.idle_at().max(now));
        let retry_after = match decision.retry_after {
            Retry::After(wait) if !decision.allowed => {
                Retry::after((now + wait).min(self.passes_at(bucket, cost)).since(now))
            }
            other => other,
        };
        Decision { reset_at, retry_after, ..decision }
    }

    /// Returns when a denied cost passes while the bucket fills at its own pace.
    fn passes_at(&self, bucket: &Bucket, cost: Cost) -> Timestamp {
        let room = self.depth.saturating_sub(self.ticks_of(cost)) / u128::from(self.ticks_per_micro());
        let leaves = bucket.leaves(u64::try_from(room).unwrap_or(u64::MAX), self.shared_pace());
        // Before it was last written there is nothing to wait for but that the clock is there again.
        if leaves < Timestamp::from_micros(bucket.since) { Timestamp::MAX } else { leaves }
    }

    /// [`refund`](super::Settle::refund) to a bucket of another pace, or `None` where nothing is refunded. Units that
    /// have come back at the faster of both paces since the charge are not refunded a second time.
    pub(super) fn refund_carried(
        &self,
        bucket: &Bucket,
        mark: Mark,
        units: Cost,
        now: Timestamp,
    ) -> Option<Tat> {
        let pace = self.shared_pace();
        let tat = self.carried(bucket, now).0;
        let latest = self.ticks_of_micros(now.as_micros()).max(tat.saturating_sub(self.depth));
        let elapsed = latest.saturating_sub(self.ticks_of_micros(mark.0 / NANOS));
        let micros = elapsed.div_ceil(u128::from(self.ticks_per_micro()));
        let by_old = bucket.pace.time_at(micros.saturating_mul(u128::from(bucket.pace.base)), pace);
        let elapsed = elapsed.max(self.ticks_of_micros(by_old));
        let back = self.ticks_of(units.min(self.units())).saturating_sub(elapsed);
        (back > 0 && !self.shapes()).then(|| Tat(tat.saturating_sub(back)))
    }
}
