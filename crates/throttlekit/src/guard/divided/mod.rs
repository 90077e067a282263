//! A limit that is divided over nodes: each admits work locally, and all of them together never exceed the limit.
//!
//! A background task sends heartbeats: it reports to the store and receives the node's share and its expiry. Between two
//! heartbeats there are no calls; an admission is a compare-and-swap and a read of the clock.

mod demand;
mod driver;
mod lease;
mod node;
mod permit;
mod select;
mod start;
mod stats;
#[cfg(test)]
mod tests;

pub(super) use node::{Divided, Refused};
pub(super) use permit::OwnedSharePermit;
pub use permit::SharePermit;
pub(super) use start::Setup;
pub use stats::DivisionStats;
