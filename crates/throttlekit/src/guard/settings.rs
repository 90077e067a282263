//! Settings that all limits of a guard share.

use throttlekit_core::concurrency::Estimator;

use super::count::LIMIT_MAX;
use super::priority::{Kept, Priorities};
use super::sampling;
use super::single::Single;
use super::slots::Slots;
use super::tuner::Own;
use crate::clock::{BootClock, Clock};
use crate::concurrency::OneLimit;

/// Priorities, queue and clock of each limit of a guard.
#[derive(Clone, Debug)]
pub(super) struct Settings<C = BootClock> {
    priorities: Priorities,
    pub(super) queue_max: u32,
    clock: C,
}

impl Settings {
    pub(super) fn new() -> Self {
        Self { priorities: Priorities::only(), queue_max: 0, clock: BootClock }
    }
}

impl<C> Settings<C> {
    /// Adds a priority after the last, from which this many thousandths of the limit are withheld.
    pub(super) fn priority_below(&mut self, withheld_thousandths: u16) {
        self.priorities.add(Kept::thousandths(withheld_thousandths));
    }

    pub(super) fn clock<D>(self, clock: D) -> Settings<D> {
        Settings { priorities: self.priorities, queue_max: self.queue_max, clock }
    }
}

impl<C: Clock + Clone> Settings<C> {
    /// Creates one limit.
    pub(super) fn single(&self, limit: OneLimit) -> Single<C> {
        let (own, timed) = match limit {
            OneLimit::Fixed(limit) => (Own::Fixed(limit.min(LIMIT_MAX)), 0),
            OneLimit::Adaptive(ceiling) => (Own::Inferred(Box::new(Estimator::new(ceiling))), sampling::ALL),
        };
        let slots = Slots::new(own.limit(), timed, self.priorities.clone(), self.queue_max);
        Single::from_parts(slots, own, self.clock.clone())
    }
}
