//! Handles for the hottest keys.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use throttlekit_core::lease::{Draw, Spend, Term};
use throttlekit_core::{Cost, Decision};

use super::TwoTier;
use super::engine::Tier;
use super::key_state::KeySlot;
use crate::store::{Store, StoreError};
use crate::{Answer, Ask, LeaseClock};

/// One key of a [`TwoTier`], found once and kept.
///
/// Threads share it by reference. [`till`](Self::till) gives each a drawer of its own.
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

    /// Spends from what the node holds, and says how many units are left of that; or nothing, and then more is fetched
    /// meanwhile. Never waits. [`decision`](Self::decision) words it.
    // The locked instruction waits for every older store, so a call, which saves registers, is felt.
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

    /// The answer to a caller that was served and left so many units. Its `reset_at` may be that of a window which has
    /// begun since: not to be [refunded](TwoTier::refund) by.
    pub fn decision(&self, left: Cost) -> Decision {
        self.tier.allowed(self.slot.reset_at(), left)
    }

    #[cold]
    fn refill(&self) {
        self.tier.refill_held(self.fingerprint, &self.key);
    }

    /// Answers an ask of this cost. Waits only if the store must be asked.
    pub async fn check(&self, cost: Cost) -> Result<Answer, StoreError> {
        TwoTier { tier: self.tier.clone() }.check(Ask::of(&self.key).cost(cost)).await
    }

    /// A drawer for one thread, which takes up to `units` out of the shared purse at a time. What it has is spent
    /// without touching memory that other threads write. Units that are carried over it takes one ask at a time.
    pub fn till(&self, units: Cost) -> Till<'_, S, C> {
        Till { key: self, units: units.max(1), drawn: Draw::default() }
    }
}

impl<S: Store, C: LeaseClock + 'static> Drop for HeldKey<S, C> {
    fn drop(&mut self) {
        self.slot.state().pins -= 1;
    }
}

/// One thread's part of what a node holds of a key. What is left goes back to the purse when it is dropped.
pub struct Till<'a, S: Store, C: LeaseClock + 'static> {
    key: &'a HeldKey<S, C>,
    units: Cost,
    drawn: Draw,
}

impl<S: Store, C: LeaseClock + 'static> Till<'_, S, C> {
    /// Spends from the drawer, filled from the purse when it is empty, and says how many units are left in it; or nothing, and then more is fetched
    /// meanwhile. Never waits.
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
            // Too few to be of use here; others may need fewer.
            slot.purse.put_back(std::mem::take(&mut self.drawn));
            return None;
        };
        Some(left)
    }
}

impl<S: Store, C: LeaseClock + 'static> Till<'_, S, C> {
    /// Units that are carried from window to window pass beyond the limit, as many as a node holds. What lies in a till
    /// the node does not see and would fetch again, so of these a till keeps none.
    fn at_once(&self, cost: Cost) -> Cost {
        if self.key.tier.plan.term == Term::Carry { cost } else { self.units.max(cost) }
    }
}

impl<S: Store, C: LeaseClock + 'static> Drop for Till<'_, S, C> {
    fn drop(&mut self) {
        self.key.slot.purse.put_back(self.drawn);
    }
}
