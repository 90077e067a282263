//! The slots that this process holds.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Hold, LeaseId, Owner};
use tokio::sync::{Notify, oneshot};

use super::stats::{Counters, SlotStats};
use crate::background::Mailbox;
use crate::hash::{random_u64, random_u128};
use crate::store::{Background, SlotLease, StoreError};

/// Every slot of this process that is held or asked for, so that one task beats for all.
pub(super) struct SlotRegistry {
    tickets: Mutex<HashMap<LeaseId, Arc<Ticket>>>,
    pub(super) owner: Owner,
    slots_max: usize,
    pub(super) background: Background,
    pub(super) counters: Counters,
}

/// One slot, while it is held or asked for.
pub(super) struct Ticket {
    /// The key as the store keeps it.
    pub(super) key: Arc<str>,
    pub(super) lease: LeaseId,
    /// Nothing while it is only asked for.
    hold: Mutex<Option<Hold>>,
    /// Rung when the deadline moves or the slot is lost.
    pub(super) bell: Notify,
}

/// A slot on its way back. Whoever waits hears whether it was held.
pub(super) struct Leave {
    pub(super) ticket: Arc<Ticket>,
    pub(super) told: Option<oneshot::Sender<Result<bool, StoreError>>>,
}

/// The way to the renewer.
pub(super) type Leaves = Arc<Mailbox<Leave>>;

impl SlotRegistry {
    pub(super) fn new(slots_max: usize, background: Background) -> Self {
        Self {
            tickets: Mutex::default(),
            owner: Owner(random_u128()),
            slots_max,
            background,
            counters: Counters::default(),
        }
    }

    /// Enters a slot that is asked for, unless too many are.
    pub(super) fn enter(&self, key: Arc<str>) -> Option<Arc<Ticket>> {
        let lease = LeaseId(random_u128());
        let ticket = Arc::new(Ticket { key, lease, hold: Mutex::default(), bell: Notify::new() });
        let mut tickets = self.tickets();
        if tickets.len() >= self.slots_max {
            return None;
        }
        tickets.insert(lease, ticket.clone());
        Some(ticket)
    }

    pub(super) fn strike(&self, lease: LeaseId) {
        self.tickets().remove(&lease);
    }

    /// Up to `most` slots whose beat is due now, those of one key beside each other.
    pub(super) fn due(&self, most: usize, now: Timestamp) -> Vec<Arc<Ticket>> {
        let mut due = Vec::new();
        for ticket in self.tickets().values() {
            if due.len() >= most {
                break;
            }
            if ticket.is_due(now) {
                due.push(ticket.clone());
            }
        }
        due.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        due
    }

    pub(super) fn stats(&self) -> SlotStats {
        self.counters.read(self.tickets().len())
    }

    /// Nothing under it runs code of others, so a panic leaves nothing half done.
    fn tickets(&self) -> MutexGuard<'_, HashMap<LeaseId, Arc<Ticket>>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// The slot was admitted.
    pub(super) fn begin(&self, hold: Hold) {
        *self.hold() = Some(hold);
    }

    /// Whether work has to stop. A slot that is only asked for is nobody's to work in.
    pub(super) fn is_fenced(&self, now: Timestamp) -> bool {
        self.hold().as_mut().is_none_or(|hold| hold.is_fenced(now))
    }

    pub(super) fn deadline(&self) -> Timestamp {
        self.hold().map_or(Timestamp::EPOCH, |hold| hold.deadline())
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.hold().as_mut().is_some_and(|hold| hold.poll_beat(random_u64() as u32, now))
    }

    /// The beat that was sent at `sent` was answered; says whether the slot was lost by it.
    pub(super) fn beaten(&self, sent: Timestamp, lives: Option<Duration>, now: Timestamp) {
        if let Some(hold) = self.hold().as_mut() {
            hold.handle_beat(sent, lives, now);
        }
        self.bell.notify_waiters();
    }

    /// The lease as the store knows it.
    pub(super) fn lease(&self, owner: Owner) -> SlotLease<'_> {
        SlotLease { key: &self.key, lease: self.lease, owner }
    }

    fn hold(&self) -> MutexGuard<'_, Option<Hold>> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leave {
    /// Sends a slot back. Where nobody takes it, it comes back when its lease is over.
    pub(super) fn send(self, leaves: &Leaves, counters: &Counters) {
        if leaves.send(self).is_err() {
            counters.lapsed.fetch_add(1, Relaxed);
        }
    }
}
