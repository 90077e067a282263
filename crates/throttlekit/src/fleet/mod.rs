//! One ceiling for a fleet: each node lets work in by itself, and all of them together never more than the ceiling.
//!
//! ```no_run
//! use throttlekit::FleetGuard;
//! use throttlekit::store::MemoryStore;
//!
//! # async fn example() {
//! // Of all processes that build it over the same Redis or PostgreSQL, together a hundred at a time.
//! let backend = FleetGuard::builder(MemoryStore::new(), "backend", 100).build();
//! let Ok(permit) = backend.try_acquire() else {
//!     return; // this node's share is in use: answer 503
//! };
//! match permit.run(call_backend()).await {
//!     Ok(()) => permit.success(),
//!     // This node was cut off from the others: the work was stopped, its slot is another's.
//!     Err(_fenced) => permit.ignored(),
//! }
//! backend.leave().await;
//! # }
//! # async fn call_backend() {}
//! ```
//!
//! A task of the guard's own beats: it reports to the fleet and hears which share it has and for how long. Between two
//! beats nobody calls anybody; letting work in is a compare-and-swap and a look at the clock.
//!
//! # What is promised
//!
//! * The sum of what the nodes have in flight never exceeds the ceiling in force, while shares move, nodes come, go,
//!   stop or die, and messages are lost. It takes what leases take: clocks whose pace is within the
//!   [margin](FleetBuilder::margin), a store whose clock is not set, and work that ends when its grant does, or as long
//!   after as [`linger`](FleetBuilder::linger) says. See [`FleetPermit::run`].
//! * A node that hears nothing lets nothing in from the instant on at which the others may have its share. With
//!   [`local`](FleetBuilder::local) it goes on with so many of its own, labelled [`Local`](crate::Guarantee::Local), and
//!   the sum is at most the ceiling and that many for each node that is cut off.
//! * What a failover of the store may lose is up to the store: see its `Failover`. A roll that is lost takes nothing
//!   from anybody, and lets no share rise for as long as a grant lives.

mod builder;
mod demand;
mod driver;
mod guard;
mod lease;
mod permit;
mod select;
mod stats;
#[cfg(test)]
mod tests;

pub use builder::{FleetBuilder, FleetClock};
pub use guard::{FleetGuard, NotLetIn};
pub use permit::{Fenced, FleetPermit, OwnedFleetPermit};
pub use stats::FleetStats;
pub use throttlekit_core::concurrency::fleet::{
    Beat, Fold, Folded, Grant, NODES_MAX, NodeId, NotARoll, Report, Roll, Split,
};
