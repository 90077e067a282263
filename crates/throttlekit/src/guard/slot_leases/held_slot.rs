//! A slot that a caller holds while work runs.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::Hold;
use tokio::sync::oneshot;

use super::slot_registry::{Leave, Leaves, SlotRegistry, Ticket};
use crate::clock::LeaseClock;
use crate::store::StoreError;

/// Number of the store's deadlines for which a release is awaited, and extra time for the pauses between its attempts
/// and for those before it.
const RELEASE_DEADLINES: u32 = 16;
const RELEASE_PAUSES: Duration = Duration::from_secs(5);

/// Proof that this process holds a slot, until a deadline that heartbeats extend.
///
/// If dropped, it is released by a background task; if the process ends before that, it is free when its lease expires.
#[must_use = "dropping it gives the slot back"]
pub(in crate::guard) struct HeldSlot {
    ticket: Arc<Ticket>,
    registry: Arc<SlotRegistry>,
    clock: Arc<dyn LeaseClock>,
    leaves: Leaves,
    /// True if the store may know of it.
    owed: bool,
}

impl HeldSlot {
    pub(super) fn asked_for(
        ticket: Arc<Ticket>,
        registry: Arc<SlotRegistry>,
        clock: Arc<dyn LeaseClock>,
        leaves: Leaves,
    ) -> Self {
        Self { ticket, registry, clock, leaves, owed: true }
    }

    pub(super) fn begin(&self, hold: Hold) {
        self.ticket.begin(hold);
    }

    /// Drops a slot that the store does not know of.
    pub(super) fn forget(mut self) {
        self.owed = false;
    }

    pub(super) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Returns the time until which work may run, by the clock that the slots were built with, as of now: heartbeats
    /// extend it.
    pub(in crate::guard) fn deadline(&self) -> Timestamp {
        self.ticket.deadline()
    }

    /// Returns whether work has to stop. Once it has, it always has. Check it before every step that must not be done
    /// twice.
    pub(in crate::guard) fn is_fenced(&self) -> bool {
        self.ticket.is_fenced(self.clock.now())
    }

    /// Waits until work has to stop.
    pub(in crate::guard) async fn fenced(&self) {
        loop {
            let rung = self.ticket.bell.notified();
            let now = self.clock.now();
            if self.ticket.is_fenced(now) {
                return;
            }
            // Heartbeats extend the deadline, and losses shorten it: both notify.
            let _ = self.registry.background.within(self.deadline().since(now), rung).await;
        }
    }

    /// Releases the slot, and returns whether it was held to the end. If this is dropped while it waits, the slot is
    /// released all the same.
    ///
    /// An error means that it is unknown whether the slot was released: the store did not respond, or no renewer was
    /// left to call it. Then it is free when its lease expires.
    pub(in crate::guard) async fn release(mut self) -> Result<bool, StoreError> {
        let (told, hears) = oneshot::channel();
        self.leave(Some(told));
        let background = &self.registry.background;
        let deadline = background.deadline();
        let wait = RELEASE_PAUSES + deadline.saturating_mul(RELEASE_DEADLINES);
        let told = background.within(wait, hears).await.ok_or(StoreError::Deadline(deadline))?;
        told.unwrap_or_else(|_| {
            Err(StoreError::unavailable("the background task that returns slots has ended"))
        })
    }

    /// Ends the heartbeats of this slot: a heartbeat during the release would only extend the lease.
    fn leave(&mut self, told: Option<oneshot::Sender<Result<bool, StoreError>>>) {
        self.registry.strike(self.ticket.lease);
        if !std::mem::take(&mut self.owed) {
            return;
        }
        if self.ticket.deadline() > Timestamp::EPOCH && self.is_fenced() {
            self.registry.counters.fenced.fetch_add(1, Relaxed);
        }
        Leave { ticket: self.ticket.clone(), told }.send(&self.leaves, &self.registry.counters);
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        self.leave(None);
    }
}

debug_fields!([] HeldSlot, |it| key = it.ticket.key, deadline = it.deadline());
