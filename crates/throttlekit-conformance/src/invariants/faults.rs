//! Rules with the faults of real limiters: doubles, refilling twice, dropping remainders.

use std::time::Duration;

use throttlekit_core::rate::{Limit, Rule};
use throttlekit_core::{Cost, Decision, Retry, Timestamp};

use crate::Spec;
use crate::text::nanos;

/// GCRA as in the first implementation: doubles, in milliseconds since the epoch (fault B10).
#[derive(Clone, Copy, Debug)]
pub(super) struct FloatGcra {
    spacing_ms: f64,
    burst: u64,
}

impl FloatGcra {
    /// Creates the rule. `None` for limits that are not plain GCRA or too fast for a wait in whole milliseconds.
    pub(super) fn new(spec: &Spec) -> Option<Self> {
        let Spec::Gcra { units, period, burst } = *spec else { return None };
        Some(Self { spacing_ms: nanos(period) as f64 / 1e6 / units as f64, burst })
    }

    fn ms(now: Timestamp) -> f64 {
        now.as_nanos() as f64 / 1e6
    }

    fn next(&self, tat: f64, cost: Cost, now: Timestamp) -> f64 {
        tat.max(Self::ms(now)) + self.spacing_ms * cost as f64
    }
}

impl Rule for FloatGcra {
    type State = f64;

    fn decide(&self, tat: &f64, cost: Cost, now: Timestamp) -> Decision {
        let depth = self.spacing_ms * self.burst as f64;
        let next = self.next(*tat, cost, now);
        let wait = Duration::from_nanos(((next - depth - Self::ms(now)).max(0.0) * 1e6).ceil() as u64);
        let allowed = wait.is_zero() && cost <= self.burst;
        let left = ((depth - (next - Self::ms(now))) / self.spacing_ms).floor().max(0.0) as u64;
        let retry_after = if cost > self.burst { Retry::Never } else { Retry::after(wait) };
        let reset_at = Timestamp::from_nanos((next * 1e6).ceil() as u64);
        Decision { allowed, limit: self.burst, remaining: left, reset_at, retry_after }
    }

    fn charge(&self, tat: &mut f64, cost: Cost, now: Timestamp) {
        *tat = self.next(*tat, cost, now);
    }

    fn idle_at(&self, tat: &f64) -> Timestamp {
        Timestamp::from_nanos((tat * 1e6).ceil() as u64)
    }

    fn join(&self, tat: &mut f64, other: &f64) {
        *tat = tat.max(*other);
    }
}

/// A token bucket as in the first implementation, in whole numbers: a clock that steps back refills nothing, but the
/// earlier instant is stored, and the way forward is refilled twice (fault B8).
#[derive(Clone, Copy, Debug)]
pub(super) struct PhantomRefill {
    capacity: u64,
    units: u64,
    period: u64,
}

/// Missing units, times the period, and the instant of that level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Level {
    missing: u128,
    last: Timestamp,
}

impl PhantomRefill {
    /// Creates the rule. `None` for limits that are no token bucket.
    pub(super) fn new(spec: &Spec) -> Option<Self> {
        let Spec::TokenBucket { capacity, units, period } = *spec else { return None };
        Some(Self { capacity, units, period: nanos(period) })
    }

    fn refilled(&self, level: &Level, now: Timestamp) -> u128 {
        level.missing.saturating_sub(now.since(level.last).as_nanos() * u128::from(self.units))
    }

    fn wait(&self, ticks: u128) -> Duration {
        Duration::from_nanos(u64::try_from(ticks.div_ceil(u128::from(self.units))).unwrap_or(u64::MAX))
    }
}

impl Rule for PhantomRefill {
    type State = Level;

    fn decide(&self, level: &Level, cost: Cost, now: Timestamp) -> Decision {
        let (period, capacity) =
            (u128::from(self.period), u128::from(self.capacity) * u128::from(self.period));
        let missing = self.refilled(level, now);
        let wanted = missing + u128::from(cost) * period;
        let allowed = wanted <= capacity;
        let left = (capacity - if allowed { wanted } else { missing }) / period;
        let retry_after = if cost > self.capacity {
            Retry::Never
        } else {
            Retry::after(self.wait(wanted.saturating_sub(capacity)))
        };
        let reset_at = now + self.wait(if allowed { wanted } else { missing });
        Decision { allowed, limit: self.capacity, remaining: left as u64, reset_at, retry_after }
    }

    fn charge(&self, level: &mut Level, cost: Cost, now: Timestamp) {
        let missing = self.refilled(level, now) + u128::from(cost) * u128::from(self.period);
        *level = Level { missing, last: now };
    }

    fn idle_at(&self, level: &Level) -> Timestamp {
        level.last + self.wait(level.missing)
    }

    fn join(&self, level: &mut Level, other: &Level) {
        if self.idle_at(other) > self.idle_at(level) {
            *level = *other;
        }
    }
}

/// Returns the same limit with its pace truncated to whole nanoseconds: too fast when rounded down, too slow when
/// rounded up. `None` if nothing is truncated.
pub(super) fn remainder_dropped(spec: &Spec, up: bool) -> Option<Limit> {
    let Spec::Gcra { units, period, burst } = *spec else { return None };
    let ns = nanos(period);
    if ns.is_multiple_of(units) {
        return None;
    }
    let pace = if up { ns.div_ceil(units) } else { ns / units };
    Spec::Gcra { units: 1, period: Duration::from_nanos(pace), burst }.limit().ok()
}
