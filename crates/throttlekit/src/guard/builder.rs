//! Builder of a guard.

use throttlekit_core::concurrency::{Ceiling, Estimator};

use super::Guard;
use super::count::LIMIT_MAX;
use super::priority::{Kept, Priorities};
use super::sampling;
use super::slots::Slots;
use super::tuner::Own;
use crate::{BootClock, Clock};

/// A concurrency limit: a number, or a [`Ceiling`] within which it is inferred.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum GuardLimit {
    /// A fixed number.
    Fixed(u32),
    /// As many as keeps latency low.
    Adaptive(Ceiling),
}

impl From<u32> for GuardLimit {
    fn from(limit: u32) -> Self {
        Self::Fixed(limit)
    }
}

impl From<Ceiling> for GuardLimit {
    fn from(ceiling: Ceiling) -> Self {
        Self::Adaptive(ceiling)
    }
}

/// Builder of a [`Guard`].
///
/// ```
/// use throttlekit::Guard;
/// use throttlekit::guard::Priority;
///
/// // Interactive work may use all ten, batches leave three to it; of each at most a hundred wait.
/// let guard = Guard::builder(10).priority_below(300).depth_max(100).build();
/// let batch = Priority::new(1);
/// let permits: Vec<_> = (0..7).map(|_| guard.try_acquire_as(batch).unwrap()).collect();
/// assert!(guard.try_acquire_as(batch).is_err() && guard.try_acquire().is_ok());
/// # drop(permits);
/// ```
#[derive(Clone, Debug)]
pub struct GuardBuilder<C = BootClock> {
    limit: GuardLimit,
    priorities: Priorities,
    depth_max: u32,
    clock: C,
}

impl GuardBuilder {
    pub(super) fn new(limit: GuardLimit) -> Self {
        Self { limit, priorities: Priorities::only(), depth_max: 0, clock: BootClock }
    }
}

impl<C: Clock> GuardBuilder<C> {
    /// Replaces the limit.
    pub(super) fn limit(self, limit: GuardLimit) -> Self {
        Self { limit, ..self }
    }

    /// Adds a priority after the last, from which this many thousandths of the limit are withheld, rounded down.
    ///
    /// Never fewer than from the priority before it, and never the whole limit: if there is a slot at all, each priority may
    /// use one. A guard has at most [`Priority::LEVELS_MAX`](super::Priority::LEVELS_MAX) priorities; more are not added.
    pub fn priority_below(mut self, kept_thousandths: u16) -> Self {
        self.priorities.add(Kept::thousandths(kept_thousandths));
        self
    }

    /// Sets the maximum number of waiters of each priority. Default: 0.
    pub fn depth_max(self, depth: u32) -> Self {
        Self { depth_max: depth, ..self }
    }

    /// Sets the clock that measures latency. Default: [`BootClock`].
    pub fn clock<D: Clock>(self, clock: D) -> GuardBuilder<D> {
        let Self { limit, priorities, depth_max, .. } = self;
        GuardBuilder { limit, priorities, depth_max, clock }
    }

    /// Builds the guard.
    pub fn build(self) -> Guard<C> {
        let (own, timed) = match self.limit {
            GuardLimit::Fixed(limit) => (Own::Fixed(limit.min(LIMIT_MAX)), 0),
            GuardLimit::Adaptive(ceiling) => {
                (Own::Inferred(Box::new(Estimator::new(ceiling))), sampling::ALL)
            }
        };
        let slots = Slots::new(own.limit(), timed, self.priorities, self.depth_max);
        Guard::from_parts(slots, own, self.clock)
    }
}
