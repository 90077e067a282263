//! One ceiling for a fleet: each node infers what the backend takes, the fleet shares it, and nobody calls anybody
//! for a request.
//!
//! * [`Report`] is what a node says at each beat: what it applied, what it has in flight, what it infers, what it wants.
//! * [`Fold`] is the rule: the ceiling of all from the reports, and the share of one. Its state is a [`Roll`], kept
//!   where all nodes reach it. A store need not know the rule: it swaps one roll for the next.
//! * [`Node`] is the node's side: when to beat, which grant counts, when to stop.
//!
//! The bound: the sum of what is in flight never exceeds the ceiling in force, also while shares move, while messages
//! are lost, late, repeated or out of order, and while nodes stop, die and return. Two terms hold it. Of each node as
//! much is reserved as it may still enforce, which is the greatest share that it was granted since the one it last
//! acknowledged; and as much as it had in flight when it did, since work under way cannot be called back.
//!
//! If the ceiling falls below what is in flight, nothing more is granted until work has ended.

mod membership;
mod node;
mod rebalance;
#[cfg(test)]
mod tests;

pub use membership::{Member, NODES_MAX, NotARoll, Roll};
pub use node::{Beats, Node, Occupancy};
pub use rebalance::{Beat, Fold, Folded, Split};

use core::time::Duration;

/// One process of the fleet for as long as it lives: drawn at random when it starts, so that one that was started
/// again is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u128);

/// What a node says of itself at a beat, all of it as of one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    /// Who.
    pub node: NodeId,
    /// Counts this node's reports, from one.
    pub beat: u64,
    /// The number of the grant it enforces; zero if it enforces none.
    pub applied: u64,
    /// The share of that grant.
    pub holds: u32,
    /// How many it has in flight. Read after the grant was applied: an older number would hide work that runs on.
    pub in_flight: u32,
    /// How many at a time it thinks the whole backend takes; zero if it does not know yet.
    pub limit: u32,
    /// How many it would have in flight if nobody were turned away.
    pub wants: u32,
    /// It takes no more work and will be gone when what it has is done.
    pub leaving: bool,
}

/// A share of the ceiling, until it is replaced or dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Counts the grants of the whole fleet. No node goes back to a lower one while its own lives.
    pub number: u64,
    /// How many the node may have in flight.
    pub share: u32,
    /// How many it is due, once the others have handed over what they have too much.
    pub due: u32,
    /// How many the fleet may have in flight.
    pub ceiling: u32,
    /// How long it lives by the store's clock, from some instant after the report was sent.
    pub lives: Duration,
}
