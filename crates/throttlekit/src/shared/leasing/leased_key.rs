//! Handles for the hottest keys.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use throttlekit_core::Decision;
use throttlekit_core::lease::Spend;

use super::ThreadCache;
use super::engine::Engine;
use super::key_state::KeySlot;
use crate::Answer;
use crate::call::Part;
use crate::clock::LeaseClock;
use crate::store::{Store, StoreError};

/// One key of a leased [`SharedLimiter`](crate::SharedLimiter), found once and kept. While it exists, the node keeps the
/// key's slot.
///
/// Threads share it by reference. [`thread_cache`](Self::thread_cache) gives each a cache of its own.
pub struct LeasedKey<S: Store, C: LeaseClock + 'static> {
    pub(super) engine: Arc<Engine<S, C>>,
    fingerprint: u64,
    key: Box<[u8]>,
    pub(super) slot: Arc<KeySlot>,
}

impl<S: Store, C: LeaseClock + 'static> LeasedKey<S, C> {
    pub(super) fn new(engine: &Arc<Engine<S, C>>, fingerprint: u64, key: &[u8]) -> Option<Self> {
        let slot = engine.pin(fingerprint)?;
        Some(Self { engine: engine.clone(), fingerprint, key: key.into(), slot })
    }

    /// Spends from the local lease, and returns how many units are left of that. Returns `None` if there are too few,
    /// and then more is fetched meanwhile. Never waits. [`decision`](Self::decision) computes the decision.
    // The locked instruction waits for every older store, so a call, which saves registers, is noticeable.
    #[inline(always)]
    pub fn try_spend(&self, cost: u64) -> Option<u64> {
        let Spend::Spent { left } = self.slot.local_lease.spend(cost, || self.engine.clock.now()) else {
            self.refill();
            return None;
        };
        if left < self.slot.low.load(Relaxed) {
            self.refill();
        }
        Some(left)
    }

    /// Returns the decision for a caller that was served and left `left` units. Its `reset_at` may be that of a window
    /// which has begun since: do not [refund](crate::SharedLimiter::refund) by it.
    pub fn decision(&self, left: u64) -> Decision {
        self.engine.allowed(self.slot.reset_at(), left)
    }

    #[cold]
    pub(super) fn refill(&self) {
        self.engine.refill_held(self.fingerprint, &self.key);
    }

    /// Checks a request of this cost. Waits only if the store must be called.
    pub async fn check(&self, cost: u64) -> Result<Answer, StoreError> {
        self.engine.check(Part { key: &self.key, cost }).await
    }

    /// Creates a per-thread cache, which takes up to `units` out of the shared local lease at a time. It is spent
    /// without touching memory that other threads write. Units that are carried over it takes one request at a time.
    pub fn thread_cache(&self, units: u64) -> ThreadCache<'_, S, C> {
        ThreadCache::new(self, units)
    }
}

impl<S: Store, C: LeaseClock + 'static> Drop for LeasedKey<S, C> {
    fn drop(&mut self) {
        self.slot.state.lock().pins -= 1;
    }
}

debug_fields!([S: Store, C: LeaseClock + 'static] LeasedKey<S, C>, |it| key = it.key);
