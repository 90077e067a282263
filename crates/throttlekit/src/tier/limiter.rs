//! What users hold.

use std::sync::Arc;

use throttlekit_core::lease::{Authority, Term};
use throttlekit_core::rate::{Limit, LimitError};
use throttlekit_core::{Cost, Decision, Timestamp};

use super::builder::{Chosen, Mode, TierBuilder};
use super::engine::Tier;
use super::held_key::HeldKey;
use super::returner;
use super::stats::TierStats;
use crate::store::{Store, StoreError};
use crate::{Answer, Ask, BootClock, KeyHash, LeaseClock, SharedLimiter};

/// One limit over state that many processes share, answered mostly by this node. See [the module](super).
pub struct TwoTier<S, C = BootClock> {
    pub(super) tier: Arc<Tier<S, C>>,
}

impl<S: Store> TwoTier<S> {
    /// Describes a limiter over many keys. The policy's name tells its keys apart from those of others on the store;
    /// a [`SharedLimiter`] of the same policy and limit counts together with it.
    pub fn builder<L: TryInto<Limit>>(store: S, policy: &str, limit: L) -> TierBuilder<S>
    where
        LimitError: From<L::Error>,
    {
        TierBuilder::new(store, policy, limit.try_into().map_err(LimitError::from))
    }
}

impl<S: Store, C: LeaseClock + 'static> TwoTier<S, C> {
    pub(super) fn new(
        shared: SharedLimiter<S>,
        clock: C,
        chosen: Chosen,
        authority: Option<Authority>,
    ) -> Self {
        Self { tier: Arc::new(Tier::new(shared, clock, chosen, authority)) }
    }

    /// Answers an ask from what this node holds or remembers, or not at all. Never waits.
    #[inline]
    pub fn try_check<'a>(&self, ask: impl Into<Ask<'a>>) -> Option<Decision> {
        let ask = ask.into();
        let place = self.tier.table.find(self.tier.hash.fingerprint(ask.key))?;
        if let Some(decision) = self.tier.spend(&place, ask) {
            return Some(decision);
        }
        let state = place.slot.try_state()?;
        state.holder.denied(ask.cost, self.tier.clock.now()).filter(|_| place.is_mine())
    }

    /// Answers one ask, and charges it if allowed. Waits only if the store must be asked, and then for up to nine of
    /// its deadlines where others take the units first. Requests run in the background, so whoever else waits for the same
    /// units, and on which runtime, makes no difference; if the background itself stands still, the ask is answered as in an
    /// outage after no more than ten deadlines. A store's deadline is that of its
    /// [`background`](crate::store::Store::background).
    pub async fn check<'a>(&self, ask: impl Into<Ask<'a>>) -> Result<Answer, StoreError> {
        let (ask, tier) = (ask.into(), &self.tier);
        if tier.chosen.mode == Mode::Strict || ask.cost == 0 || ask.cost > tier.cost_max {
            return tier.strict(ask).await;
        }
        let fingerprint = tier.hash.fingerprint(ask.key);
        if let Some(place) = tier.table.find(fingerprint)
            && let Some(decision) = tier.spend(&place, ask)
        {
            return Ok(tier.local(decision));
        }
        tier.check_at_desk(fingerprint, ask).await
    }

    /// Hands units back that this node admitted and that were not used, into the window that ends at `reset_at`, as the
    /// decision said: they can be spent here again, or go back to the store with what lies idle. They lapse if the node
    /// holds no units of that window any more, and where units are not lent by windows.
    ///
    /// To be called once for what was charged, and only for answers of this node itself. One with a
    /// [receipt](Answer::receipt) is settled by it; what was admitted in an [outage](Answer::outage) was taken from no
    /// limit.
    pub fn refund(&self, key: impl AsRef<[u8]>, units: Cost, reset_at: Timestamp) {
        let tier = &self.tier;
        let Some(place) = tier.table.find(tier.hash.fingerprint(key.as_ref())) else { return };
        let mut state = place.slot.state();
        if place.is_mine() {
            state.refund(place.slot, units, reset_at, tier.clock.now());
        }
    }

    /// Whether [refunds](Self::refund) count: where units are lent by windows, and where nothing is lent.
    pub(crate) fn takes_back(&self) -> bool {
        self.tier.authority.is_none_or(|authority| authority.term() == Term::Window)
    }

    /// A handle to one key that many threads spend from, which saves finding it. While one is held, the node keeps the
    /// key's place. Nothing, if there is none free or nothing is lent in this mode.
    pub fn hold(&self, key: &[u8]) -> Option<HeldKey<S, C>> {
        self.tier.authority?;
        HeldKey::new(&self.tier, self.tier.hash.fingerprint(key), key)
    }

    /// Gives back whatever this node holds, as far as it can be: not what is still on its way here. For a node that is
    /// about to stop.
    pub async fn close(&self) -> Result<(), StoreError> {
        returner::give_back(&self.tier, |slot, state, now| state.hand_in(slot, now)).await
    }

    /// What has been done.
    pub fn stats(&self) -> TierStats {
        self.tier.counters.read()
    }

    /// The limiter that asks the store.
    pub fn shared(&self) -> &SharedLimiter<S> {
        &self.tier.shared
    }
}

impl<S, C> Clone for TwoTier<S, C> {
    fn clone(&self) -> Self {
        Self { tier: self.tier.clone() }
    }
}

impl<S, C> std::fmt::Debug for TwoTier<S, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TwoTier").field("chosen", &self.tier.chosen).finish_non_exhaustive()
    }
}
