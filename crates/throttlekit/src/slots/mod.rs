//! Slots shared by processes: no more concurrent work than the limit, on all nodes together.
//!
//! [`SharedSlots::admit`] requests a slot from the store. The [`HeldSlot`] it returns is held while work runs; dropping
//! it releases the slot. A slot is held under a lease: one task sends heartbeats for all slots of a process, and those
//! of a process that died are free again when their leases expire. The holder of a slot has a deadline by its own
//! clock; past that it is fenced.
//!
//! ```
//! use std::time::Duration;
//! use throttlekit::{SharedSlots, store::MemoryStore};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let slots = SharedSlots::builder(MemoryStore::new(), "gpu", 2).build()?;
//!
//! let admitted = slots.admit("acme").await?;
//! let Some(slot) = admitted.slot else {
//!     panic!("come back on a release: {:?}", admitted.decision.retry_after);
//! };
//! let answer = slot.run(async { 6 * 7 }).await;
//! assert_eq!(answer, Ok(42));
//! assert!(slot.release().await?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! The store never counts more than the limit, and no work under [`HeldSlot::run`] goes on past the end of its lease:
//! so concurrent work never exceeds the limit, whatever the network does, and also if a process is paused for longer
//! than a lease lives. What a holder did just before it read its clock cannot be undone: one step of the work may end
//! after the fence. A slot whose holder died is free again when its lease expires (guarantee `slots` in the
//! [guarantees](https://github.com/throttlekit/throttlekit/blob/main/docs/guarantees.md)).
//!
//! The documentation of a store describes what its failover forgets. A lease must outlive one: with leases of two
//! seconds every failover of a Redis cluster takes all slots from their holders.
//!
//! [`LeaseRegistry`] is the lease registry in one process: leases over permits of any kind, for a server whose clients hold
//! them.

mod builder;
mod handle;
mod held_slot;
mod lease_registry;
mod renewer;
mod slot_registry;
mod stats;

pub use builder::SlotsBuilder;
pub use handle::{Admission, SharedSlots};
pub use held_slot::HeldSlot;
pub use lease_registry::{Ends, LeaseRegistry};
pub use stats::SlotStats;
pub use throttlekit_core::concurrency::Ending;

pub use crate::fence::Fenced;
