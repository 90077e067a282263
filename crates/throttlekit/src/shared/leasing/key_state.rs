//! The state of one key on a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use throttlekit_core::Timestamp;
use throttlekit_core::lease::{Epoch, Holder, HolderOptions, HolderStep, LocalLease, Reply, Return, Sizing};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::store::{Leased, StoreError};
use crate::sync::{Mutex, SharedWord};

/// Maximum number of returns of one key within one window.
const RETURNS_PER_WINDOW_MAX: u32 = 16;

/// Reason why a lease request brought nothing.
pub(super) enum Failed {
    /// No response.
    Outage(StoreError),
    /// The loan had expired when it arrived.
    Lapsed,
}

/// One key: the local lease, from which any thread spends, and the state behind it, one caller at a time.
#[repr(align(64))]
pub(super) struct KeySlot {
    pub(super) local_lease: LocalLease<SharedWord>,
    /// Number of units below which more are fetched. Zero while they are being fetched.
    pub(super) low: AtomicU64,
    /// Time when the whole limit is free again, by the store's clock, from the loan that last filled the local lease.
    /// For units of a window it names that window.
    reset_at: AtomicU64,
    refill_at_percent: u64,
    pub(super) state: Mutex<KeyState>,
    /// Notified when a request has come back.
    pub(super) bell: Notify,
}

pub(super) struct KeyState {
    /// The key as the store keeps it, once it was needed.
    pub(super) key: Option<Arc<str>>,
    pub(super) holder: Holder,
    pub(super) sizing: Sizing,
    /// Callers that wait for the notification.
    pub(super) waiting: usize,
    /// Handles that spend from this slot without checking whose it is.
    pub(super) pins: usize,
    /// The last request that brought nothing, and why.
    pub(super) failed: Option<(u64, Failed)>,
    /// Number of returns in the window of the last one. Each leaves its name with the store as long as the window
    /// lasts.
    returned: (Epoch, u32),
    /// Units in the local lease when it was last counted.
    counted: u64,
    asked_at: Timestamp,
    /// True if a caller came or units were spent since the last look for idle keys.
    stirred: bool,
}

impl KeySlot {
    pub(super) fn new(plan: HolderOptions, sizing: Sizing, refill_at_percent: u8) -> Self {
        Self {
            local_lease: LocalLease::new(),
            low: AtomicU64::new(0),
            reset_at: AtomicU64::new(0),
            refill_at_percent: refill_at_percent.into(),
            state: Mutex::new(KeyState {
                key: None,
                holder: Holder::new(plan),
                sizing,
                waiting: 0,
                pins: 0,
                failed: None,
                returned: (Epoch::default(), 0),
                counted: 0,
                asked_at: Timestamp::EPOCH,
                stirred: false,
            }),
            bell: Notify::new(),
        }
    }

    /// Returns the time when the whole limit is free again, by the store's clock. Written after the local lease is
    /// filled: a thread that reads it and then spends, spends units of that window or of a later one, never of one
    /// before.
    #[inline(always)]
    pub(super) fn reset_at(&self) -> Timestamp {
        Timestamp::from_nanos(self.reset_at.load(Acquire))
    }

    /// Returns the time since which no caller locked the state, if the key holds nothing and no handle relies on it.
    pub(super) fn idle_since(&self, now: Timestamp) -> Option<Timestamp> {
        let state = self.state.try_lock()?;
        state.is_free(self, now).then_some(state.asked_at)
    }

    /// Resets the slot and removes its key, if it still is idle.
    ///
    /// Both while the state is locked, so that a caller that finds there that it is still its key's can rely on it. And
    /// the local lease is emptied first: units taken by a thread that found the slot before do not belong with the
    /// deadline which that thread has read.
    pub(super) fn clear(&self, now: Timestamp, disown: impl FnOnce()) -> bool {
        let Some(mut state) = self.state.try_lock() else { return false };
        if !state.is_free(self, now) {
            return false;
        }
        self.local_lease.empty(now);
        self.low.store(0, Relaxed);
        self.reset_at.store(0, Release);
        state.clear();
        disown();
        true
    }
}

impl KeyState {
    fn is_free(&self, slot: &KeySlot, now: Timestamp) -> bool {
        self.pins == 0 && self.waiting == 0 && !self.holder.is_asking() && slot.local_lease.left(now) == 0
    }

    fn clear(&mut self) {
        self.key = None;
        self.holder = self.holder.fresh();
        self.sizing.clear();
        (self.failed, self.returned, self.counted) = (None, (Epoch::default(), 0), 0);
        self.asked_at = Timestamp::EPOCH;
    }

    /// Records that a caller came.
    pub(super) fn greet(&mut self, now: Timestamp) {
        (self.asked_at, self.stirred) = (now, true);
    }

    /// Handles a caller that the local lease could not serve.
    pub(super) fn ask(&mut self, slot: &KeySlot, cost: u64, clock: &impl Clock) -> HolderStep {
        self.count(slot, self.asked_at);
        let turn = self.holder.handle_ask(&slot.local_lease, cost, || clock.now());
        self.recount(slot);
        if matches!(turn, HolderStep::Spent { .. }) {
            self.sizing.served(cost, self.asked_at);
        }
        turn
    }

    /// Handles the store's response.
    pub(super) fn reply(&mut self, slot: &KeySlot, id: u64, lent: &Leased, now: Timestamp) -> Reply {
        self.count(slot, now);
        let reply = self.holder.handle_reply(&slot.local_lease, id, lent.loan, now);
        if reply == Reply::Credited {
            slot.reset_at.store(lent.loan.decision.reset_at.as_nanos(), Release);
        }
        self.recount(slot);
        if reply == Reply::Lapsed {
            self.failed = Some((id, Failed::Lapsed));
        }
        if lent.loan.decision.remaining == 0 {
            // The last of its window: a fetch ahead would only be denied.
            slot.low.store(0, Relaxed);
        }
        reply
    }

    /// Takes back units that were spent and not used, of the window that ends at `reset_at`.
    pub(super) fn refund(&mut self, slot: &KeySlot, units: u64, reset_at: Timestamp, now: Timestamp) {
        if slot.reset_at() == reset_at {
            self.count(slot, now);
            self.holder.handle_refund(&slot.local_lease, units);
            self.counted = slot.local_lease.units();
        }
    }

    /// Returns what to give back of a key that was idle since the last look.
    pub(super) fn idle(&mut self, slot: &KeySlot, now: Timestamp) -> Option<Return> {
        self.count(slot, now);
        if std::mem::take(&mut self.stirred) || self.waiting > 0 {
            return None;
        }
        self.hand_in(slot, now)
    }

    /// Returns what to give back, idle or not. The number of returns in one window is limited; beyond it the units
    /// lapse with the window.
    pub(super) fn hand_in(&mut self, slot: &KeySlot, now: Timestamp) -> Option<Return> {
        slot.low.store(0, Relaxed);
        let back = self.holder.poll_return(&slot.local_lease, now);
        self.counted = slot.local_lease.units();
        let back = back?;
        if self.returned.0 != back.epoch {
            self.returned = (back.epoch, 0);
        }
        self.returned.1 += 1;
        (self.returned.1 <= RETURNS_PER_WINDOW_MAX).then_some(back)
    }

    /// Sets the threshold for the next fetch, as the local lease may have been filled.
    fn recount(&mut self, slot: &KeySlot) {
        let units = slot.local_lease.units();
        if units > self.counted {
            slot.low.store(units.saturating_mul(slot.refill_at_percent) / 100, Relaxed);
        }
        self.counted = units;
    }

    /// Counts what was spent since the last time.
    fn count(&mut self, slot: &KeySlot, now: Timestamp) {
        let units = slot.local_lease.units();
        let spent = self.counted.saturating_sub(units);
        self.counted = units;
        self.stirred |= spent > 0;
        self.sizing.served(spent, now);
    }

    pub(super) fn failed(&mut self, id: u64, error: StoreError) {
        self.holder.handle_failure(id);
        self.failed = Some((id, Failed::Outage(error)));
    }
}
