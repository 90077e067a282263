//! The queue of waiters: first come, first served within a priority, priorities in their order.
//!
//! One node per waiter, in a slab whose free entries are reused. Entering, leaving and giving up take a fixed number of
//! steps each.
//!
//! ```text
//! // Waiting => Granted | gone
//! // Granted => gone
//! ```

use std::task::Waker;

/// No node.
const NONE: u32 = u32::MAX;

/// The waiters of all priorities.
#[derive(Debug)]
pub(super) struct WaitQueue<G> {
    nodes: Vec<Node<G>>,
    free: u32,
    ranks: Box<[Rank]>,
    queue_max: u32,
}

/// The waiters of one priority.
#[derive(Clone, Copy, Debug)]
struct Rank {
    first: u32,
    last: u32,
    depth: u32,
}

#[derive(Debug)]
struct Node<G> {
    before: u32,
    after: u32,
    priority: u32,
    state: State<G>,
}

#[derive(Debug)]
enum State<G> {
    Free,
    Waiting(Waker),
    Granted(G),
}

/// A position in the queue. Valid until the waiter leaves.
#[derive(Debug)]
pub(super) struct Ticket(u32);

/// The result of checking a position.
pub(super) enum Turn<G> {
    /// Not yet. Returns the previously stored waker, to be dropped without the lock.
    Wait(Ticket, Waker),
    /// A slot was granted; the position is free.
    Come(G),
}

/// The remains of a waiter that gives up.
pub(super) enum Left<G> {
    Place(Waker),
    Slot(G),
}

impl<G> WaitQueue<G> {
    /// Creates a queue for this many priorities, with at most `queue_max` waiters in each.
    pub(super) fn new(priorities: usize, queue_max: u32) -> Self {
        let nobody = Rank { first: NONE, last: NONE, depth: 0 };
        let queue_max = queue_max.min((NONE - 1) / (2 * priorities as u32));
        Self { nodes: Vec::new(), free: NONE, ranks: vec![nobody; priorities].into(), queue_max }
    }

    pub(super) fn waiting(&self) -> u32 {
        self.ranks.iter().map(|rank| rank.depth).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// Checks whether a waiter is ahead of a new request of this priority.
    pub(super) fn is_ahead_of(&self, priority: usize) -> bool {
        self.first().is_some_and(|first| first <= priority)
    }

    /// Returns the priority whose turn it is.
    pub(super) fn first(&self) -> Option<usize> {
        self.ranks.iter().position(|rank| rank.depth > 0)
    }

    pub(super) fn is_full(&self, priority: usize) -> bool {
        self.ranks[priority].depth >= self.queue_max
    }

    /// Appends a waiter to a priority that is not full.
    pub(super) fn enter(&mut self, priority: usize, waker: Waker) -> Ticket {
        let last = self.ranks[priority].last;
        let node =
            Node { before: last, after: NONE, priority: priority as u32, state: State::Waiting(waker) };
        let at = self.place(node);
        match last {
            NONE => self.ranks[priority].first = at,
            last => self.nodes[last as usize].after = at,
        }
        self.ranks[priority].last = at;
        self.ranks[priority].depth += 1;
        Ticket(at)
    }

    /// Grants a slot to the first waiter of a priority. It holds the slot until it takes it or gives up.
    pub(super) fn grant(&mut self, priority: usize, slot: G) -> Option<Waker> {
        let first = self.ranks[priority].first;
        let state = std::mem::replace(&mut self.nodes.get_mut(first as usize)?.state, State::Granted(slot));
        self.unlink(first);
        match state {
            State::Waiting(waker) => Some(waker),
            _ => None,
        }
    }

    /// Checks whether a slot was granted; if not, stores the waker.
    pub(super) fn look(&mut self, ticket: Ticket, waker: Waker) -> Turn<G> {
        let node = &mut self.nodes[ticket.0 as usize];
        match std::mem::replace(&mut node.state, State::Free) {
            State::Granted(slot) => {
                self.vacate(ticket.0);
                Turn::Come(slot)
            }
            State::Waiting(old) => {
                node.state = State::Waiting(waker);
                Turn::Wait(ticket, old)
            }
            State::Free => unreachable!("a ticket has a place"),
        }
    }

    /// Leaves the queue. A slot that was already granted is the caller's to hand on.
    #[expect(clippy::needless_pass_by_value, reason = "nobody leaves twice")]
    pub(super) fn leave(&mut self, ticket: Ticket) -> Left<G> {
        let at = ticket.0;
        let state = std::mem::replace(&mut self.nodes[at as usize].state, State::Free);
        if let State::Waiting(_) = state {
            self.unlink(at);
        }
        self.vacate(at);
        match state {
            State::Waiting(waker) => Left::Place(waker),
            State::Granted(slot) => Left::Slot(slot),
            State::Free => unreachable!("a ticket has a place"),
        }
    }

    /// Closes the gap that a node leaves in its priority.
    fn unlink(&mut self, at: u32) {
        let Node { before, after, priority, .. } = self.nodes[at as usize];
        let rank = &mut self.ranks[priority as usize];
        match before {
            NONE => rank.first = after,
            before => self.nodes[before as usize].after = after,
        }
        match after {
            NONE => rank.last = before,
            after => self.nodes[after as usize].before = before,
        }
        rank.depth -= 1;
    }

    fn place(&mut self, node: Node<G>) -> u32 {
        if self.free == NONE {
            self.nodes.push(node);
            return self.nodes.len() as u32 - 1;
        }
        let at = self.free;
        self.free = self.nodes[at as usize].after;
        self.nodes[at as usize] = node;
        at
    }

    fn vacate(&mut self, at: u32) {
        self.nodes[at as usize].after = self.free;
        self.free = at;
    }
}
