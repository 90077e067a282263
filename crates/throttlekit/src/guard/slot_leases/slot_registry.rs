//! The slots that this process holds.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Hold, LeaseId, Owner};
use tokio::sync::{Notify, oneshot};

use super::stats::{Counters, SlotStats};
use crate::background::Mailbox;
use crate::hash::{random_u64, random_u128};
use crate::store::{Background, SlotLease, StoreError};
use crate::sync::Mutex;

/// Every slot of this process that is held or requested, so that one task sends heartbeats for all.
pub(super) struct SlotRegistry {
    tickets: Mutex<HashMap<LeaseId, Arc<Ticket>>>,
    pub(super) owner: Owner,
    slots_max: usize,
    pub(super) background: Background,
    pub(super) counters: Counters,
    /// Time when the renewer's last round began, by the clock of the slots, in nanoseconds.
    pub(super) round_at: AtomicU64,
}

/// One slot, while it is held or requested.
pub(super) struct Ticket {
    /// The key as the store keeps it.
    pub(super) key: Arc<str>,
    pub(super) lease: LeaseId,
    /// `None` while it is only requested.
    hold: Mutex<Option<Hold>>,
    /// Notified when the deadline moves or the slot is lost.
    pub(super) bell: Notify,
}

/// A slot to release. A waiting caller gets whether it was held.
pub(super) struct Leave {
    pub(super) ticket: Arc<Ticket>,
    pub(super) told: Option<oneshot::Sender<Result<bool, StoreError>>>,
}

/// Mailbox of the renewer.
pub(super) type Leaves = Arc<Mailbox<Leave>>;

impl SlotRegistry {
    pub(super) fn new(slots_max: usize, background: Background) -> Self {
        Self {
            tickets: Mutex::default(),
            owner: Owner(random_u128()),
            slots_max,
            background,
            counters: Counters::default(),
            round_at: AtomicU64::new(0),
        }
    }

    /// Adds a slot that is requested, unless there are too many.
    pub(super) fn enter(&self, key: Arc<str>) -> Option<Arc<Ticket>> {
        let lease = LeaseId(random_u128());
        let ticket = Arc::new(Ticket { key, lease, hold: Mutex::default(), bell: Notify::new() });
        let mut tickets = self.tickets.lock();
        if tickets.len() >= self.slots_max {
            return None;
        }
        tickets.insert(lease, ticket.clone());
        Some(ticket)
    }

    pub(super) fn strike(&self, lease: LeaseId) {
        self.tickets.lock().remove(&lease);
    }

    /// Returns up to `most` slots whose heartbeat is due now, those of one key beside each other.
    pub(super) fn due(&self, most: usize, now: Timestamp) -> Vec<Arc<Ticket>> {
        let mut due = Vec::new();
        for ticket in self.tickets.lock().values() {
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
        SlotStats { held: self.tickets.lock().len() as u64, ..self.counters.read() }
    }
}

impl Ticket {
    /// Records that the slot was admitted.
    pub(super) fn begin(&self, hold: Hold) {
        *self.hold.lock() = Some(hold);
    }

    /// Returns whether work has to stop. No work may run in a slot that is only requested.
    pub(super) fn is_fenced(&self, now: Timestamp) -> bool {
        self.hold.lock().as_mut().is_none_or(|hold| hold.is_fenced(now))
    }

    pub(super) fn deadline(&self) -> Timestamp {
        self.hold.lock().map_or(Timestamp::EPOCH, |hold| hold.deadline())
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.hold.lock().as_mut().is_some_and(|hold| hold.poll_heartbeat(random_u64() as u32, now))
    }

    /// Records the response to the heartbeat that was sent at `sent`.
    pub(super) fn renewed(&self, sent: Timestamp, lives: Option<Duration>, now: Timestamp) {
        if let Some(hold) = self.hold.lock().as_mut() {
            hold.handle_heartbeat(sent, lives, now);
        }
        self.bell.notify_waiters();
    }

    /// Returns the lease as the store knows it.
    pub(super) fn lease(&self, owner: Owner) -> SlotLease<'_> {
        SlotLease { key: &self.key, lease: self.lease, owner }
    }
}

impl Leave {
    /// Releases a slot. If the renewer does not take it, it is free when its lease expires.
    pub(super) fn send(self, leaves: &Leaves, counters: &Counters) {
        if leaves.send(self).is_err() {
            counters.lapsed.fetch_add(1, Relaxed);
        }
    }
}
