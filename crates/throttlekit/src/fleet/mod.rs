//! A shared concurrency limit: each node admits work locally, and all of them together never exceed the limit.
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
//! A background task of the guard sends heartbeats: it reports to the store and receives the node's share and its
//! expiry. Between two heartbeats there are no calls; an admission is a compare-and-swap and a read of the clock.
//!
//! # Guarantees
//!
//! * The sum of what the nodes have in flight never exceeds the limit in force, while shares change, nodes join, leave,
//!   stop or crash, and messages are lost. It assumes what leases assume: clocks whose rate is within the
//!   [margin](FleetBuilder::margin), a store whose clock is not set, and work that ends when its grant does, or at most
//!   [`linger`](FleetBuilder::linger) later. See [`FleetPermit::run`].
//! * A disconnected node admits nothing from the instant at which the others may have its share. With
//!   [`local`](FleetBuilder::local) it continues with that many of its own, labeled [`Local`](crate::Guarantee::Local),
//!   and the sum is at most the limit plus that many for each disconnected node.
//! * What a failover of the store may lose depends on the store: see its `Failover`. A lost membership record revokes
//!   nothing, and lets no share rise for the lifetime of a grant.

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
pub use permit::{FleetPermit, OwnedFleetPermit};
pub use stats::FleetStats;
pub use throttlekit_core::concurrency::fleet::{
    Beat, Fold, Folded, Grant, NODES_MAX, NodeId, NotARoll, Report, Roll, Split,
};

pub use crate::fence::Fenced;
