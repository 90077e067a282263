//! The leased limiter.

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
use crate::{Answer, BootClock, Call, KeyHash, LeaseClock, SharedLimiter};

/// One limit over state that many processes share, decided mostly by this node. See [the module](super).
pub struct TwoTier<S, C = BootClock> {
    pub(super) tier: Arc<Tier<S, C>>,
}

impl<S: Store> TwoTier<S> {
    /// Creates a builder of a limiter over many keys. The policy's name separates its keys from those of others on the
    /// store; a [`SharedLimiter`] of the same policy and limit counts together with it.
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

    /// Checks a request with what this node holds or remembers. Returns `None` if that does not suffice. Never waits.
    #[inline]
    pub fn try_check<'a>(&self, ask: impl Into<Call<'a>>) -> Option<Decision> {
        let ask = ask.into();
        let place = self.tier.table.find(self.tier.hash.fingerprint(ask.key()))?;
        if let Some(decision) = self.tier.spend(&place, ask) {
            return Some(decision);
        }
        let state = place.slot.state.try_lock()?;
        state.holder.denied(ask.units(), self.tier.clock.now()).filter(|_| place.is_mine())
    }

    /// Checks one request, and charges it if allowed. Waits only if the store must be called, and then for up to nine
    /// of its deadlines if others take the units first. Lease requests run in the background, so it makes no difference
    /// who else waits for the same units, and on which runtime; if the background itself stalls, the request is decided
    /// as in an outage after no more than ten deadlines. A store's deadline is that of its
    /// [`background`](crate::store::Store::background).
    pub async fn check<'a>(&self, ask: impl Into<Call<'a>>) -> Result<Answer, StoreError> {
        let (ask, tier) = (ask.into(), &self.tier);
        if tier.chosen.mode == Mode::Strict || ask.units() == 0 || ask.units() > tier.cost_max {
            return tier.strict(ask).await;
        }
        let fingerprint = tier.hash.fingerprint(ask.key());
        if let Some(place) = tier.table.find(fingerprint)
            && let Some(decision) = tier.spend(&place, ask)
        {
            return Ok(tier.local(decision));
        }
        tier.check_at_desk(fingerprint, ask).await
    }

    /// Returns units that this node admitted and that were not used to the window that ends at `reset_at`, as in the
    /// decision: they can be spent here again, or go back to the store with idle units. They lapse if the node holds no
    /// units of that window any more, and if units are not lent by windows.
    ///
    /// Call it once for what was charged, and only for answers of this node itself. One with a
    /// [receipt](Answer::receipt) is settled by it; what was admitted in an [outage](Answer::outage) was taken from no
    /// limit.
    pub fn refund(&self, key: impl AsRef<[u8]>, units: Cost, reset_at: Timestamp) {
        let tier = &self.tier;
        let Some(place) = tier.table.find(tier.hash.fingerprint(key.as_ref())) else { return };
        let mut state = place.slot.state.lock();
        if place.is_mine() {
            state.refund(place.slot, units, reset_at, tier.clock.now());
        }
    }

    /// Returns whether [refunds](Self::refund) count: if units are lent by windows, and if nothing is lent.
    pub(crate) fn takes_back(&self) -> bool {
        self.tier.authority.is_none_or(|authority| authority.term() == Term::Window)
    }

    /// Returns a handle to one key that many threads spend from, which saves finding it. While one is held, the node
    /// keeps the key's slot. Returns `None` if no slot is free or nothing is lent in this mode.
    pub fn hold(&self, key: &[u8]) -> Option<HeldKey<S, C>> {
        self.tier.authority?;
        HeldKey::new(&self.tier, self.tier.hash.fingerprint(key), key)
    }

    /// Gives back all units that this node holds, as far as possible: not those that are still on their way here. For a
    /// node that is about to stop.
    pub async fn close(&self) -> Result<(), StoreError> {
        returner::give_back(&self.tier, |slot, state, now| state.hand_in(slot, now)).await
    }

    /// Returns the statistics.
    pub fn stats(&self) -> TierStats {
        self.tier.counters.read()
    }

    /// Returns the limiter that calls the store.
    pub fn shared(&self) -> &SharedLimiter<S> {
        &self.tier.shared
    }
}

clone_fields!([S, C] TwoTier<S, C>, tier);

debug_fields!([S, C] TwoTier<S, C>, |it| chosen = it.tier.chosen);
