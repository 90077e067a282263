//! The event queue.

use core::cmp::Ordering;
use std::collections::BinaryHeap;

use throttlekit_core::Timestamp;

use crate::operation::Message;

/// A scheduled event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Callers send requests.
    Burst {
        node: usize,
    },
    /// Callers send requests at all nodes at one instant.
    Herd {
        node: usize,
    },
    /// A node checks whether it should send.
    Wake {
        node: usize,
    },
    /// A paused thread continues.
    Decide {
        node: usize,
    },
    Arrive(Message),
    /// The deadline of a request.
    Deadline {
        node: usize,
        request: u64,
    },
    Replicate,
    Restart {
        node: usize,
    },
    /// A fault is injected.
    Fault,
    /// The replica takes over if it has not received every write.
    LaggedFailover,
    /// The demand changes.
    Mood,
}

/// Events by time; events of the same time in the order in which they were pushed.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Due>,
    pushed: u64,
}

#[derive(Debug)]
struct Due {
    at: Timestamp,
    nth: u64,
    event: Event,
}

impl Queue {
    pub(super) fn push(&mut self, at: Timestamp, event: Event) {
        self.pushed += 1;
        self.heap.push(Due { at, nth: self.pushed, event });
    }

    pub(super) fn pop(&mut self) -> Option<(Timestamp, Event)> {
        self.heap.pop().map(|due| (due.at, due.event))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.nth).cmp(&(self.at, self.nth))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}
