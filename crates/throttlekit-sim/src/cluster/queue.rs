//! What is due when.

use core::cmp::Ordering;
use std::collections::BinaryHeap;

use throttlekit_core::Timestamp;

use crate::operation::Message;

/// Something that is due.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Callers ask.
    Burst {
        node: usize,
    },
    /// Callers ask, all at one instant.
    Herd {
        node: usize,
    },
    /// A node looks whether it should send.
    Wake {
        node: usize,
    },
    /// A thread that slept goes on.
    Decide {
        node: usize,
    },
    Arrive(Message),
    /// A request has had its time.
    Deadline {
        node: usize,
        request: u64,
    },
    Replicate,
    Restart {
        node: usize,
    },
    /// A fault befalls someone.
    Fault,
    /// The replica takes over, if there is something that it has not heard of.
    LaggedFailover,
    /// Callers become more or fewer.
    Mood,
}

/// Events by time; of one time, in the order in which they were put here.
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
