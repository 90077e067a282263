//! Caches of single threads for the hottest keys.

use std::sync::atomic::Ordering::Relaxed;

use throttlekit_core::lease::{Draw, Spend, Term};

use super::LeasedKey;
use crate::clock::LeaseClock;
use crate::store::Store;

/// Per-thread cache of a key's local lease. What is left goes back to the local lease when it is dropped.
pub struct ThreadCache<'a, S: Store, C: LeaseClock + 'static> {
    key: &'a LeasedKey<S, C>,
    units: u64,
    drawn: Draw,
}

impl<'a, S: Store, C: LeaseClock + 'static> ThreadCache<'a, S, C> {
    pub(super) fn new(key: &'a LeasedKey<S, C>, units: u64) -> Self {
        Self { key, units: units.max(1), drawn: Draw::default() }
    }

    /// Spends from the cache, filled from the local lease when it is empty, and returns how many units are left in it.
    /// Returns `None` if there are too few, and then more is fetched meanwhile. Never waits.
    #[inline]
    pub fn try_spend(&mut self, cost: u64) -> Option<u64> {
        if let Spend::Spent { left } = self.drawn.spend(cost, || self.key.engine.clock.now()) {
            return Some(left);
        }
        self.draw(cost)
    }

    #[cold]
    fn draw(&mut self, cost: u64) -> Option<u64> {
        let slot = &self.key.slot;
        slot.local_lease.put_back(std::mem::take(&mut self.drawn));
        self.drawn = slot.local_lease.draw(self.at_once(cost));
        let spend = self.drawn.spend(cost, || self.key.engine.clock.now());
        if !matches!(spend, Spend::Spent { .. }) || slot.local_lease.units() < slot.low.load(Relaxed) {
            self.key.refill();
        }
        let Spend::Spent { left } = spend else {
            // Too few for this request; others may need fewer.
            slot.local_lease.put_back(std::mem::take(&mut self.drawn));
            return None;
        };
        Some(left)
    }

    /// Returns how many units to take at once. Units that are carried from window to window pass beyond the limit, as
    /// many as a node holds. The node does not see what a per-thread cache holds and would fetch it again, so it keeps
    /// none of these.
    fn at_once(&self, cost: u64) -> u64 {
        if self.key.engine.plan.term == Term::Carry { cost } else { self.units.max(cost) }
    }
}

impl<S: Store, C: LeaseClock + 'static> Drop for ThreadCache<'_, S, C> {
    fn drop(&mut self) {
        self.key.slot.local_lease.put_back(self.drawn);
    }
}

debug_fields!(
    [S: Store, C: LeaseClock + 'static] ThreadCache<'_, S, C>,
    |it| key = it.key, units = it.drawn.units()
);
