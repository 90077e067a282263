//! Slots that a fleet shares: no more work at a time than the ceiling, on all nodes together.
//!
//! [`SharedSlots::admit`] asks the store for a slot. The [`HeldSlot`] it gives is held while work runs; dropping it gives the
//! slot back. A slot is held under a lease: one task beats for all slots of a process, and those of a process that died
//! come back by themselves. Whoever holds a slot knows until when it may work, by its own clock; past that it is fenced.
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
//! # What it promises
//!
//! The store never counts more than the ceiling, and nobody works in a slot past the end of its lease who works under
//! [`HeldSlot::run`]: so no more than the ceiling work at a time, whatever the network does, and also where a process is
//! paused for longer than a lease lives. What a holder did just before it looked at its clock cannot be undone: one step
//! of the work may end after the fence. A slot whose holder died comes back when its lease is over (law `slots` in the
//! [guarantees](https://github.com/throttlekit/throttlekit/blob/main/docs/guarantees.md)).
//!
//! What a failover of the store forgets is told with the store. A lease must outlive one: with leases of two seconds every
//! failover of a Redis cluster takes all slots from their holders.
//!
//! [`SlotDesk`] is the other side in process: leases over permits of any kind, for a server whose clients hold them.

mod builder;
mod handle;
mod held_slot;
mod lease_registry;
mod renewer;
mod slot_registry;
mod stats;

pub use builder::SlotsBuilder;
pub use handle::{Admission, SharedSlots};
pub use held_slot::{Fenced, HeldSlot};
pub use lease_registry::{Ends, SlotDesk};
pub use stats::SlotStats;
pub use throttlekit_core::concurrency::Ending;
