//! Backends whose best ceiling is known: exactly C concurrent calls.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The discipline by which a backend serves its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// C servers, and one queue before them: first come, first served.
    Queue,
    /// C shared cores: all calls run at once, and more slowly the more there are beyond C.
    Sharing,
}

/// C servers or cores, and their calls.
#[derive(Clone, Debug)]
pub(super) enum Backend {
    Queue(Queue),
    Sharing(Sharing),
}

/// A call in the backend: its identifier, and its duration without waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) call: u64,
    pub(super) alone_ns: f64,
}

impl Backend {
    pub(super) fn new(discipline: Discipline, capacity: u32) -> Self {
        match discipline {
            Discipline::Queue => Self::Queue(Queue { capacity, ..Queue::default() }),
            Discipline::Sharing => Self::Sharing(Sharing { capacity, ..Sharing::default() }),
        }
    }

    pub(super) fn set_capacity(&mut self, capacity: u32, now_ns: u64) {
        match self {
            Self::Queue(queue) => {
                queue.capacity = capacity;
                queue.start(now_ns);
            }
            Self::Sharing(sharing) => {
                sharing.advance(now_ns);
                sharing.capacity = capacity;
            }
        }
    }

    pub(super) fn arrive(&mut self, work: Work, now_ns: u64) {
        match self {
            Self::Queue(queue) => {
                queue.waiting.push_back(work);
                queue.start(now_ns);
            }
            Self::Sharing(sharing) => sharing.arrive(work, now_ns),
        }
    }

    /// Returns the number of its calls.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Queue(queue) => queue.running.len() + queue.waiting.len(),
            Self::Sharing(sharing) => sharing.running.len(),
        }
    }

    /// Returns the time at which the next call is done, if nothing else happens before.
    pub(super) fn next_done_ns(&self) -> Option<u64> {
        match self {
            Self::Queue(queue) => queue.running.peek().map(|Reverse((at, _))| *at),
            Self::Sharing(sharing) => sharing.next_done_ns(),
        }
    }

    /// Removes and returns the call that is done now.
    pub(super) fn finish(&mut self, now_ns: u64) -> u64 {
        match self {
            Self::Queue(queue) => queue.finish(now_ns),
            Self::Sharing(sharing) => sharing.finish(now_ns),
        }
    }

    /// Handles a caller that gave up: a queued call is removed, a running one keeps running for nothing.
    pub(super) fn abandon(&mut self, call: u64) {
        if let Self::Queue(queue) = self {
            queue.waiting.retain(|work| work.call != call);
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    capacity: u32,
    running: BinaryHeap<Reverse<(u64, u64)>>,
    waiting: VecDeque<Work>,
}

impl Queue {
    fn start(&mut self, now_ns: u64) {
        while self.running.len() < self.capacity as usize
            && let Some(work) = self.waiting.pop_front()
        {
            self.running.push(Reverse((now_ns + work.alone_ns as u64, work.call)));
        }
    }

    fn finish(&mut self, now_ns: u64) -> u64 {
        let Reverse((_, call)) = self.running.pop().expect("a call is running");
        self.start(now_ns);
        call
    }
}

/// All calls have had the same service since they arrived, so one service clock determines which one is done
/// next.
#[derive(Clone, Debug, Default)]
pub(super) struct Sharing {
    capacity: u32,
    served_ns: f64,
    at_ns: u64,
    running: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Sharing {
    fn rate(&self) -> f64 {
        (f64::from(self.capacity) / self.running.len().max(1) as f64).min(1.0)
    }

    fn advance(&mut self, now_ns: u64) {
        self.served_ns += (now_ns - self.at_ns) as f64 * self.rate();
        self.at_ns = now_ns;
    }

    fn arrive(&mut self, work: Work, now_ns: u64) {
        self.advance(now_ns);
        self.running.push(Reverse(((self.served_ns + work.alone_ns) as u64, work.call)));
    }

    fn next_done_ns(&self) -> Option<u64> {
        let Reverse((done, _)) = self.running.peek()?;
        let left = (*done as f64 - self.served_ns).max(0.0) / self.rate();
        Some(self.at_ns + left.ceil() as u64)
    }

    fn finish(&mut self, now_ns: u64) -> u64 {
        self.advance(now_ns);
        self.running.pop().expect("a call is running").0.1
    }
}
