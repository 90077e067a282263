//! The operations of a cluster, shared by properties, models and the simulator.

use core::time::Duration;

use throttlekit_core::Cost;
use throttlekit_core::lease::{HolderRequest, Loan, Return, ReturnId};

/// One operation. [`ClusterState::apply`](crate::state::ClusterState::apply) defines its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A caller sends a request, which is decided in one step unless it must wait.
    Ask {
        /// The node that receives it.
        node: usize,
        /// Its cost.
        cost: Cost,
    },
    /// The first half of a decision: the units are taken, then the thread pauses before it reads the clock.
    Take {
        /// The node that receives it.
        node: usize,
        /// Its cost.
        cost: Cost,
    },
    /// The second half of the oldest [`Take`](Self::Take): the clock is read, and the caller gets its
    /// decision.
    Decide {
        /// The node that received it.
        node: usize,
    },
    /// The node sends a request, if its holder wants one.
    Request {
        /// The sender.
        node: usize,
    },
    /// A message arrives.
    Deliver(Message),
    /// A message is lost.
    Lose(Message),
    /// The network duplicates a message.
    Duplicate(Message),
    /// The node's deadline for its request has passed.
    Fail {
        /// The node that gives up.
        node: usize,
    },
    /// The local lease runs low.
    Low {
        /// The node.
        node: usize,
    },
    /// An idle key returns its units.
    LeaseReturn {
        /// The node.
        node: usize,
    },
    /// The node evicts the key, and its units.
    Evict {
        /// The node.
        node: usize,
    },
    /// The node crashes. Messages to it are lost until it restarts.
    Crash {
        /// The node.
        node: usize,
    },
    /// The node restarts with nothing.
    Restart {
        /// The node.
        node: usize,
    },
    /// Time passes.
    Advance {
        /// True time.
        by: Duration,
    },
    /// The store's clock is set, forward or back.
    StepStore {
        /// The step, in milliseconds.
        by_ms: i64,
    },
    /// The replica receives the oldest write that it is missing.
    Replicate,
    /// The replica takes over with the writes it has.
    Failover {
        /// The nodes that still use the old primary, as bits: none if it is dead.
        with_old: u64,
    },
    /// The store restarts and has lost everything, replica included.
    Forget,
    /// The limit is changed, effective at once.
    SetLimit {
        /// The new limit in units.
        units: u64,
    },
}

/// A message in flight between a node and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// To the store.
    Request {
        /// The sender.
        node: usize,
        /// The request.
        request: HolderRequest,
    },
    /// To a node.
    Reply {
        /// The receiver.
        node: usize,
        /// The request that this answers.
        id: u64,
        /// The response.
        loan: Loan,
    },
    /// To the store.
    Return {
        /// The sender.
        node: usize,
        /// Its identifier.
        id: ReturnId,
        /// The returned units.
        back: Return,
    },
}

impl Message {
    /// Returns the node at one end.
    pub fn node(&self) -> usize {
        match *self {
            Self::Request { node, .. } | Self::Reply { node, .. } | Self::Return { node, .. } => node,
        }
    }

    /// Returns the identifier of the request that this is or answers.
    pub fn request_id(&self) -> Option<u64> {
        match *self {
            Self::Request { request, .. } => Some(request.id),
            Self::Reply { id, .. } => Some(id),
            Self::Return { .. } => None,
        }
    }

    /// Returns `true` if the message goes to the store.
    pub fn is_upward(&self) -> bool {
        !matches!(self, Self::Reply { .. })
    }

    /// Returns a sort key, so that equal sets of messages are equal lists.
    pub(crate) fn order(&self) -> (usize, u8, u128, u64, Option<Duration>) {
        match *self {
            Self::Request { node, request } => (node, 0, u128::from(request.id), request.want.wants, None),
            Self::Reply { node, id, loan } => (node, 1, u128::from(id), loan.granted, loan.lives),
            Self::Return { node, id, back } => (node, 2, id.0, back.units, None),
        }
    }
}
