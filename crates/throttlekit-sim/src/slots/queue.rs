//! The event queue.

use core::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Events by time; events of the same time in the order in which they were pushed.
#[derive(Debug)]
pub(super) struct Queue<E> {
    order: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, E>,
    pushed: u64,
}

impl<E> Queue<E> {
    pub(super) fn new() -> Self {
        Self { order: BinaryHeap::new(), events: BTreeMap::new(), pushed: 0 }
    }

    pub(super) fn push(&mut self, at: u64, event: E) {
        self.pushed += 1;
        self.order.push(Reverse((at, self.pushed)));
        self.events.insert(self.pushed, event);
    }

    pub(super) fn pop(&mut self) -> Option<(u64, E)> {
        let Reverse((at, nth)) = self.order.pop()?;
        Some((at, self.events.remove(&nth).expect("each is there once")))
    }
}
