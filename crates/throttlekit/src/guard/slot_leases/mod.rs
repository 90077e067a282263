//! Slots on a store: no more concurrent work than the limit, in all processes together.
//!
//! A slot is held under a lease: one task sends heartbeats for all slots of a process, and those of a process that died
//! are free again when their leases expire. The holder of a slot has a deadline by its own clock; past that it is
//! fenced.

use std::pin::Pin;

mod held_slot;
mod leases;
mod renewer;
mod slot_registry;
mod stats;

pub(super) use held_slot::HeldSlot;
pub(super) use leases::{Granted, Setup, SlotLeases};
pub(super) use renewer::SLOTS_MAX_HERE;
pub use stats::SlotStats;

use crate::Guarantee;
use crate::store::StoreError;

pub(super) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Slots on any store.
pub(super) trait AnySlots: Send + Sync {
    /// Requests a slot of a key, in one call to the store.
    ///
    /// A denial reports the free slots as `remaining`, and that a release frees one. While the store is unavailable,
    /// requests are denied. A caller that stops waiting leaves nothing behind: the call is completed by a task of its
    /// own, and a slot that nobody takes is released.
    fn admit<'a>(&'a self, key: &'a [u8]) -> Later<'a, Result<Granted, StoreError>>;

    /// Returns the number of slots of a key that are held, by all processes.
    fn occupancy<'a>(&'a self, key: &'a [u8]) -> Later<'a, Result<u32, StoreError>>;

    /// Returns the current maximum number of slots held at a time.
    fn limit(&self) -> u32;

    /// Changes the maximum held at a time, for requests of this process from now on. Slots that are held stay held.
    fn set_limit(&self, limit: u32);

    /// Returns the guarantee of a decision.
    fn guarantee(&self) -> Guarantee;

    fn stats(&self) -> SlotStats;
}
