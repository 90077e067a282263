//! What can happen to a fleet: the one vocabulary of properties, models and the simulator.

use core::time::Duration;

use throttlekit_core::Cost;
use throttlekit_core::lease::{HolderRequest, Loan, Return, ReturnId};

/// One thing that happens. [`ClusterState::apply`](crate::state::ClusterState::apply) says what comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A caller asks, and is answered in one step unless it must wait.
    Ask {
        /// Where it asks.
        node: usize,
        /// What it asks for.
        cost: Cost,
    },
    /// The first half of an answer: the units are taken, then the thread sleeps before it reads the clock.
    Take {
        /// Where it asks.
        node: usize,
        /// What it asks for.
        cost: Cost,
    },
    /// The second half of the oldest [`Take`](Self::Take): the clock is read, and the caller answered.
    Decide {
        /// Where it asked.
        node: usize,
    },
    /// The node sends a request, if its holder wants one sent.
    Request {
        /// Who sends.
        node: usize,
    },
    /// A message arrives.
    Deliver(Message),
    /// A message is lost.
    Lose(Message),
    /// The network makes two of a message.
    Duplicate(Message),
    /// The node's deadline for its request has passed.
    Fail {
        /// Who gives up.
        node: usize,
    },
    /// The local lease runs low.
    Low {
        /// Whose.
        node: usize,
    },
    /// An idle key gives back what it holds.
    LeaseReturn {
        /// Who gives.
        node: usize,
    },
    /// The node forgets the key, and what it held of it.
    Evict {
        /// Who forgets.
        node: usize,
    },
    /// The node dies. Messages to it are lost until it is back.
    Crash {
        /// Who dies.
        node: usize,
    },
    /// It is back, with nothing.
    Restart {
        /// Who is back.
        node: usize,
    },
    /// Time passes.
    Advance {
        /// True time.
        by: Duration,
    },
    /// The store's clock is set, forward or back.
    StepStore {
        /// By so many milliseconds.
        by_ms: i64,
    },
    /// The replica receives the oldest write that it has not.
    Replicate,
    /// The replica takes over with what it has.
    Failover {
        /// The nodes that go on asking the old primary, as bits: none if it is dead.
        with_old: u64,
    },
    /// The store restarts and has lost everything, replica included.
    Forget,
    /// The limit is changed, to be in force at once.
    SetLimit {
        /// To this many units.
        units: u64,
    },
}

/// What is in flight between a node and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// To the store.
    Request {
        /// From whom.
        node: usize,
        /// What it asks for.
        request: HolderRequest,
    },
    /// To a node.
    Reply {
        /// To whom.
        node: usize,
        /// Which request this answers.
        id: u64,
        /// The answer.
        loan: Loan,
    },
    /// To the store.
    Return {
        /// From whom.
        node: usize,
        /// Its name.
        id: ReturnId,
        /// What is given back.
        back: Return,
    },
}

impl Message {
    /// The node at one end.
    pub fn node(&self) -> usize {
        match *self {
            Self::Request { node, .. } | Self::Reply { node, .. } | Self::Return { node, .. } => node,
        }
    }

    /// The request that this is, or answers.
    pub fn request_id(&self) -> Option<u64> {
        match *self {
            Self::Request { request, .. } => Some(request.id),
            Self::Reply { id, .. } => Some(id),
            Self::Return { .. } => None,
        }
    }

    /// Whether it goes to the store.
    pub fn is_upward(&self) -> bool {
        !matches!(self, Self::Reply { .. })
    }

    /// An order, so that equal sets of messages are equal lists.
    pub(crate) fn order(&self) -> (usize, u8, u128, u64, Option<Duration>) {
        match *self {
            Self::Request { node, request } => (node, 0, u128::from(request.id), request.want.wants, None),
            Self::Reply { node, id, loan } => (node, 1, u128::from(id), loan.granted, loan.lives),
            Self::Return { node, id, back } => (node, 2, id.0, back.units, None),
        }
    }
}
