//! A sliding window, approximated by sub-windows.

use alloc::boxed::Box;
use alloc::vec;
use core::time::Duration;

use super::pace::{LimitError, checked_period, checked_units};
use super::{Mark, Rule, Settle, UNITS_MAX, never};
use crate::{Cost, Decision, Retry, Timestamp};

const BUCKETS_MAX: u32 = 1_000;

/// At most `limit` units in the weighted sum over the last window.
///
/// The window is cut into buckets; the newest count in full, the one that is sliding out counts by the part still
/// inside. Arithmetic is in fractions of a nanosecond of which a bucket is a whole number, so nothing is rounded before
/// the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    pub(super) limit: u64,
    /// Length of the window in ns, which is also the length of one bucket in 1/`buckets` ns.
    pub(super) length: u64,
    pub(super) buckets: u32,
    pub(super) retry: RetryHint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryHint {
    Exact,
    NextBucket,
}

/// Units a key used, by bucket. Empty until the first charge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ring {
    /// The newest bucket that was charged, counted from the epoch.
    pub(super) tick: u64,
    /// One more than the limit's buckets; bucket `t` is at `t % len`.
    pub(super) counts: Box<[u64]>,
}

/// The window as it stands at one instant, in scaled time.
struct View<'a> {
    ring: &'a Ring,
    tick: u64,
    /// Elapsed part of the current bucket.
    elapsed: u128,
    /// Time until `now` has caught up with the state, if the clock went back.
    behind: u128,
    /// Weighted use, times the length.
    used: u128,
}

impl SlidingWindow {
    /// `limit` units in any window of `length`, tracked in `buckets` steps (1 to 1000).
    pub fn new(limit: u64, length: Duration, buckets: u32) -> Result<Self, LimitError> {
        let ns = checked_period(length)?;
        if !(1..=BUCKETS_MAX).contains(&buckets) || u64::from(buckets) > ns {
            return Err(LimitError::Buckets(buckets));
        }
        Ok(Self { limit: checked_units(limit)?, length: ns, buckets, retry: RetryHint::Exact })
    }

    /// Reports the next bucket's beginning as the wait whenever no bucket is sliding out, as version 1 of the
    /// wire does. That may be early; the default is exact.
    pub fn retry_at_next_bucket(self) -> Self {
        Self { retry: RetryHint::NextBucket, ..self }
    }

    /// The most units that ever pass at once.
    pub fn units(&self) -> u64 {
        self.limit
    }

    /// Returns the length of the window.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.length)
    }

    /// The bucket that an instant lies in, counted from the epoch.
    pub(super) fn tick_at(&self, now: Timestamp) -> u64 {
        (u128::from(now.as_nanos()) * u128::from(self.buckets) / self.length()) as u64
    }

    fn length(&self) -> u128 {
        u128::from(self.length)
    }

    fn view<'a>(&self, ring: &'a Ring, now: Timestamp) -> View<'a> {
        let wanted = u128::from(now.as_nanos()) * u128::from(self.buckets);
        let scaled = wanted.max(u128::from(ring.tick) * self.length());
        let tick = (scaled / self.length()) as u64;
        let elapsed = scaled % self.length();
        let whole: u128 = (0..self.buckets).map(|age| u128::from(ring.at(tick, age))).sum();
        let leaving = u128::from(ring.at(tick, self.buckets)) * (self.length() - elapsed);
        View { ring, tick, elapsed, behind: scaled - wanted, used: whole * self.length() + leaving }
    }

    /// Returns how long until `excess` (units times length) has slid out, in nanoseconds rounded up.
    fn wait(&self, view: &View<'_>, mut excess: u128) -> u64 {
        let mut passed = view.behind;
        let mut left_in_bucket = self.length() - view.elapsed;
        for age in (0..=self.buckets).rev() {
            let leaving = u128::from(view.ring.at(view.tick, age));
            if excess <= leaving * left_in_bucket {
                return ceil_ns(passed * leaving + excess, leaving * u128::from(self.buckets));
            }
            excess -= leaving * left_in_bucket;
            passed += left_in_bucket;
            left_in_bucket = self.length();
            if self.retry == RetryHint::NextBucket {
                break;
            }
        }
        ceil_ns(passed, u128::from(self.buckets))
    }
}

impl Rule for SlidingWindow {
    type State = Ring;

    fn decide(&self, state: &Ring, cost: Cost, now: Timestamp) -> Decision {
        let view = self.view(state, now);
        let room = u128::from(self.limit) * self.length();
        let after_this_tick = (u128::from(view.tick) + 1 + u128::from(self.buckets)) * self.length();
        let left = |used: u128| (room.saturating_sub(used) / self.length()) as u64;
        let denied = Decision {
            allowed: false,
            limit: self.limit,
            remaining: left(view.used),
            reset_at: Timestamp::from_nanos(ceil_ns(after_this_tick, u128::from(self.buckets))),
            retry_after: Retry::Never,
        };
        if cost > self.limit {
            return never(denied);
        }
        let used = view.used + u128::from(cost) * self.length();
        if used <= room {
            return Decision { allowed: true, remaining: left(used), retry_after: Retry::Now, ..denied };
        }
        let wait = Duration::from_nanos(self.wait(&view, used - room));
        Decision { retry_after: Retry::after(wait), ..denied }
    }

    fn charge(&self, state: &mut Ring, cost: Cost, now: Timestamp) {
        if cost == 0 {
            return;
        }
        let tick = self.view(state, now).tick;
        state.roll_to(tick, self.buckets);
        *state.slot(tick) += cost;
    }

    fn idle_at(&self, state: &Ring) -> Timestamp {
        if state.counts.is_empty() {
            return Timestamp::EPOCH;
        }
        let gone = (u128::from(state.tick) + 1 + u128::from(self.buckets)) * self.length();
        Timestamp::from_nanos(ceil_ns(gone, u128::from(self.buckets)))
    }

    /// For every k, the newest k buckets of the join hold what the fuller of both newest k hold. Weights fall
    /// with age, so this denies whatever either denies, and no lesser ring does.
    fn join(&self, state: &mut Ring, other: &Ring) {
        if other.counts.is_empty() {
            return;
        }
        let tick = state.tick.max(other.tick);
        let mut joined = Ring::default();
        joined.roll_to(tick, self.buckets);
        let (mut mine, mut theirs, mut placed) = (0, 0, 0);
        for age in 0..=self.buckets {
            mine += state.at(tick, age);
            theirs += other.at(tick, age);
            let fuller = theirs.max(mine);
            if fuller > placed {
                *joined.slot(tick - u64::from(age)) = fuller - placed;
                placed = fuller;
            }
        }
        *state = joined;
    }
}

impl Settle for SlidingWindow {
    fn mark(&self, state: &Ring, now: Timestamp) -> Mark {
        Mark(self.view(state, now).tick)
    }

    /// Refunds units to the bucket they were taken from, while it is still counted.
    fn refund(&self, state: &mut Ring, mark: Mark, units: Cost, _now: Timestamp) {
        if mark.0 <= state.tick && state.tick - mark.0 < state.counts.len() as u64 {
            let count = state.slot(mark.0);
            *count = count.saturating_sub(units);
        }
    }

    fn owe(&self, state: &mut Ring, units: Cost, now: Timestamp) {
        let tick = self.view(state, now).tick;
        state.roll_to(tick, self.buckets);
        let count = state.slot(tick);
        *count = count.saturating_add(units).min(UNITS_MAX);
    }
}

impl Ring {
    /// Units in one bucket.
    pub(super) fn of(tick: u64, units: u64, buckets: u32) -> Self {
        let mut ring = Self::default();
        ring.roll_to(tick, buckets);
        *ring.slot(tick) = units;
        ring
    }

    /// The newest bucket that was charged, and the units in all of them.
    pub(super) fn newest_and_units(&self) -> (u64, u64) {
        (self.tick, self.counts.iter().fold(0, |sum, units| u64::saturating_add(sum, *units)))
    }

    /// Heap memory in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.counts.len() * size_of::<u64>()
    }

    /// Units in the bucket `age` steps before `tick`.
    fn at(&self, tick: u64, age: u32) -> u64 {
        let len = self.counts.len() as u64;
        match tick.checked_sub(u64::from(age)) {
            Some(bucket) if len > 0 && bucket <= self.tick && self.tick - bucket < len => {
                self.counts[(bucket % len) as usize]
            }
            _ => 0,
        }
    }

    fn slot(&mut self, tick: u64) -> &mut u64 {
        let len = self.counts.len() as u64;
        &mut self.counts[(tick % len) as usize]
    }

    /// Makes `tick` the newest bucket, clearing those that are reused on the way.
    fn roll_to(&mut self, tick: u64, buckets: u32) {
        if self.counts.is_empty() {
            self.counts = vec![0; buckets as usize + 1].into_boxed_slice();
            self.tick = tick;
        }
        let steps = (tick - self.tick).min(self.counts.len() as u64);
        for step in 0..steps {
            *self.slot(tick - step) = 0;
        }
        self.tick = tick;
    }
}

fn ceil_ns(numerator: u128, denominator: u128) -> u64 {
    u64::try_from(numerator.div_ceil(denominator)).unwrap_or(u64::MAX)
}
