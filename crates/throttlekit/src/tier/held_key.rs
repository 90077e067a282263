//! Handles for the hottest keys.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use throttlekit_core::lease::{Draw, Spend, Term};
use throttlekit_core::{Cost, Decision};

use super::TwoTier;
use super::engine::Tier;
use super::key_state::KeySlot;
use crate::store::{Store, StoreError};
use crate::{Answer, Call, LeaseClock};

/// One key of a [`TwoTier`], found once and kept.
///
/// Threads share it by reference. [`till`](Self::till) gives each a cache of its own.
pub struct HeldKey<S: Store, C: LeaseClock + 'static> {
    tier: Arc<Tier<S, C>>,
    fingerprint: u64,
    key: Box<[u8]>,
    slot: Arc<KeySlot>,
}

impl<S: Store, C: LeaseClock + 'static> HeldKey<S, C> {
    pub(super) fn new(tier: &Arc<Tier<S, C>>, fingerprint: u64, key: &[u8]) -> Option<Self> {
        let slot = tier.pin(fingerprint)?;
        Some(Self { tier: tier.clone(), fingerprint, key: key.into(), slot })
    }

    /// Spends from the local lease, and returns how many units are left of that. Returns `None` if there are too few,
    /// and then more is fetched meanwhile. Never waits. [`decision`](Self::decision) computes the decision.
    // The locked instruction waits for every older store, so a call, which saves registers, is noticeable.
    #[inline(always)]
    pub fn try_spend(&self, cost: Cost) -> Option<Cost> {
        let Spend::Spent { left } = self.slot.purse.spend(cost, || self.tier.clock.now()) else {
            self.refill();
            return None;
        };
        if left < self.slot.low.load(Relaxed) {
            self.refill();
        }
        Some(left)
    }

    /// Returns the decision for a caller that was served and left `left` units. Its `reset_at` may be that of a window
    /// which has begun since: do not [refund](TwoTier::refund) by it.
    pub fn decision(&self, left: Cost) -> Decision {
        self.tier.allowed(self.slot.reset_at(), left)
    }

    #[cold]
    fn refill(&self) {
        self.tier.refill_held(self.fingerprint, &self.key);
    }

    /// Checks a request of this cost. Waits only if the store must be called.
    pub async fn check(&self, cost: Cost) -> Result<Answer, StoreError> {
        TwoTier { tier: self.tier.clone() }.check(Call::by(&self.key).cost(cost)).await
    }

    /// Creates a per-thread cache, which takes up to `units` out of the shared local lease at a time. It is spent
    /// without touching memory that other threads write. Units that are carried over it takes one request at a time.
    pub fn till(&self, units: Cost) -> Till<'_, S, C> {
        Till { key: self, units: units.max(1), drawn: Draw::default() }
    }
}

impl<S: Store, C: LeaseClock + 'static> Drop for HeldKey<S, C> {
    fn drop(&mut self) {
        self.slot.state.lock().pins -= 1;
    }
}

/// Per-thread cache of a key's local lease. What is left goes back to the local lease when it is dropped.
pub struct Till<'a, S: Store, C: LeaseClock + 'static> {
    key: &'a HeldKey<S, C>,
    units: Cost,
    drawn: Draw,
}

impl<S: Store, C: LeaseClock + 'static> Till<'_, S, C> {
    /// Spends from the cache, filled from the local lease when it is empty, and returns how many units are left in it.
    /// Returns `None` if there are too few, and then more is fetched meanwhile. Never waits.
    #[inline]
    pub fn try_spend(&mut self, cost: Cost) -> Option<Cost> {
        if let Spend::Spent { left } = self.drawn.spend(cost, || self.key.tier.clock.now()) {
            return Some(left);
        }
        self.draw(cost)
    }

    #[cold]
    fn draw(&mut self, cost: Cost) -> Option<Cost> {
        let slot = &self.key.slot;
        slot.purse.put_back(std::mem::take(&mut self.drawn));
        self.drawn = slot.purse.draw(self.at_once(cost));
        let spend = self.drawn.spend(cost, || self.key.tier.clock.now());
        if !matches!(spend, Spend::Spent { .. }) || slot.purse.units() < slot.low.load(Relaxed) {
            self.key.refill();
        }
        let Spend::Spent { left } = spend else {
            // Too few for this request; others may need fewer.
            slot.purse.put_back(std::mem::take(&mut self.drawn));
            return None;
        };
        Some(left)
    }
}

impl<S: Store, C: LeaseClock + 'static> Till<'_, S, C> {
    /// Returns how many units to take at once. Units that are carried from window to window pass beyond the limit, as
    /// many as a node holds. The node does not see what a per-thread cache holds and would fetch it again, so it keeps
    /// none of these.
    fn at_once(&self, cost: Cost) -> Cost {
        if self.key.tier.plan.term == Term::Carry { cost } else { self.units.max(cost) }
    }
}

impl<S: Store, C: LeaseClock + 'static> Drop for Till<'_, S, C> {
    fn drop(&mut self) {
        self.key.slot.purse.put_back(self.drawn);
    }
}
