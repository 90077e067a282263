//! What slots have done.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a [`SharedSlots`](super::SharedSlots) has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotStats {
    /// Slots that are held or asked for now.
    pub held: u64,
    /// Asks that were admitted.
    pub admitted: u64,
    /// Asks that were denied.
    pub denied: u64,
    /// Calls to the store that beat.
    pub flights: u64,
    /// Beats in them.
    pub beats: u64,
    /// Beats that were told that the lease is lost.
    pub lost: u64,
    /// Slots whose deadline passed while they were held.
    pub fenced: u64,
    /// Slots that were given back.
    pub released: u64,
    /// Releases that the store did not answer; those come back when their leases are over.
    pub lapsed: u64,
    /// Keepers that were started. More than one: an earlier one ended.
    pub keepers: u64,
    /// Whether there is a renewer now that is driven: its last round began within a quarter of a life. Where slots are held
    /// and there is none, nobody beats for them.
    pub keeper_alive: bool,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) admitted: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) flights: AtomicU64,
    pub(super) beats: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) fenced: AtomicU64,
    pub(super) released: AtomicU64,
    pub(super) lapsed: AtomicU64,
    pub(super) keepers: AtomicU64,
    /// When the renewer's last round began, by the clock of the slots.
    pub(super) round_at: AtomicU64,
}

impl Counters {
    pub(super) fn read(&self, held: usize) -> SlotStats {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        SlotStats {
            held: held as u64,
            admitted: read(&self.admitted),
            denied: read(&self.denied),
            flights: read(&self.flights),
            beats: read(&self.beats),
            lost: read(&self.lost),
            fenced: read(&self.fenced),
            released: read(&self.released),
            lapsed: read(&self.lapsed),
            keepers: read(&self.keepers),
            keeper_alive: false,
        }
    }
}
