//! A shared concurrency limit: each node infers the capacity of the backend, and no request needs a remote call.
//!
//! * [`NodeReport`] is a node's heartbeat: the grant it applied, what it has in flight, the ceiling it infers, what it
//!   wants.
//! * [`Rebalancer`] is the rebalancing rule: the ceiling of all from the reports, and the share of one. Its state is a
//!   membership record ([`Membership`]), stored where all nodes reach it. A store need not run the rule: it swaps one record
//!   for the next.
//! * [`Node`] is the node's side: when to send a heartbeat, which grant counts, when to stop.
//!
//! The bound: the sum of what is in flight never exceeds the ceiling in effect, also while shares move, while messages
//! are lost, late, repeated or out of order, and while nodes stop, die and return. Two terms hold it. Each node has as
//! much reserved as it may still enforce, which is the greatest share that it was granted since the one it last
//! acknowledged; and as much as it had in flight when it did, since running work cannot be revoked.
//!
//! If the ceiling falls below what is in flight, nothing more is granted until work has ended.

mod membership;
mod node;
mod rebalance;
#[cfg(test)]
mod tests;

pub use membership::{Membership, NODES_MAX, NodeRecord, NotAMembership};
pub use node::{HeartbeatIntervals, Node, NodeLoad};
pub use rebalance::{Combine, Rebalancer, ReportResponse, Split};

use core::time::Duration;

/// ID of one process for its lifetime: drawn at random when it starts, so that a restarted process has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u128);

/// Heartbeat of a node, all of it as of one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeReport {
    /// The sender.
    pub node: NodeId,
    /// Counts this node's reports, from one.
    pub heartbeat: u64,
    /// The number of the grant it enforces; zero if it enforces none.
    pub applied: u64,
    /// The share of that grant.
    pub holds: u32,
    /// Calls in flight. Read after the grant was applied: an older number would hide work that is still running.
    pub in_flight: u32,
    /// Its estimate of the concurrency limit of the whole backend; zero if unknown.
    pub limit: u32,
    /// Calls it would have in flight if none were denied.
    pub wants: u32,
    /// It admits no more work and will be gone when its running work is done.
    pub leaving: bool,
}

/// A share of the ceiling, until it is replaced or expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Counts the grants to all nodes. No node goes back to a lower one while its own is valid.
    pub number: u64,
    /// Largest number of calls that the node may have in flight.
    pub share: u32,
    /// Share it is due, once the others have handed over their excess.
    pub due: u32,
    /// Largest number of calls that all nodes may have in flight.
    pub ceiling: u32,
    /// Lifetime by the store's clock, from some instant after the report was sent.
    pub lives: Duration,
}
