//! `slots`: at most the limit are held, and no holder works in a slot that another holds.
//!
//! * [`examine_slots`] runs traces against a [`SlotStore`](throttlekit::store::SlotStore) and against a naive model of
//!   leases, and compares every response: slots on an engine are those in process.
//! * [`check_holders`] lets holders acquire, renew and release over a network that loses and delays messages, with
//!   clocks that drift, pauses, and tables that are lost: at most as many work concurrently as there are slots.
//! * [`slots_after_a_clock_was_ahead`] acquires slots while a store's clock is a day ahead.
//! * [`slot_contention`] lets many callers acquire and release slots of one key at once.

mod ahead;
mod book;
mod contention;
mod holders;
mod same;
mod scenario;

pub use ahead::slots_after_a_clock_was_ahead;
pub use book::{Book, SeededSlots, SlotBug};
pub use contention::{SlotContention, slot_contention};
pub use holders::{HolderBug, Seen, check_holders, find_holder_bug};
pub use same::{SlotReport, examine_slots, find_slot_bug};
pub use scenario::{SlotOperation, SlotScenario};
