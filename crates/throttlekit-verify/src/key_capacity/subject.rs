//! Limiters under a flood.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use throttlekit::clock::ManualClock;
use throttlekit::hash::TrustedHash;
use throttlekit::limiter::KeyMemory;
use throttlekit::store::MemoryStore;
use throttlekit::{Guarantee, Limiter, SharedLimiter};
use throttlekit_core::rate::Limit;
use throttlekit_core::{Decision, Timestamp};

/// The response to one request.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// The decision.
    pub decision: Decision,
    /// True if it was reported as exact; `None` where responses carry no label.
    pub exact: Option<bool>,
}

/// One limit over keys within a budget of bytes.
pub trait Subject {
    /// Requests one unit.
    fn check(&mut self, key: u64) -> Reply;
    /// Sets the clock.
    fn set(&mut self, now: Timestamp);
    /// Returns its memory use.
    fn memory(&self) -> KeyMemory;
}

/// A [`Limiter`].
pub struct InProcess {
    limiter: Limiter<ManualClock, TrustedHash>,
    clock: ManualClock,
}

impl InProcess {
    /// Creates a limiter with a budget of this many bytes.
    pub fn new(limit: Limit, budget: usize, now: Timestamp) -> Self {
        let clock = ManualClock::at(now);
        let builder = Limiter::builder(limit).clock(clock.clone()).hash().memory_budget(budget);
        Self { limiter: builder.build().expect("a limit that was checked"), clock }
    }
}

impl Subject for InProcess {
    fn check(&mut self, key: u64) -> Reply {
        Reply { decision: self.limiter.check(&key.to_be_bytes()), exact: None }
    }

    fn set(&mut self, now: Timestamp) {
        self.clock.set(now);
    }

    fn memory(&self) -> KeyMemory {
        self.limiter.memory()
    }
}

/// A [`SharedLimiter`] over a [`MemoryStore`].
pub struct InStore {
    limiter: SharedLimiter<MemoryStore<ManualClock>>,
    clock: ManualClock,
}

impl InStore {
    /// Creates a limiter with a budget of this many bytes.
    pub fn new(limit: Limit, budget: usize, now: Timestamp) -> Self {
        let clock = ManualClock::at(now);
        let store = MemoryStore::with_clock(clock.clone()).memory_budget(budget);
        let limiter = SharedLimiter::new(store, "flood", limit).expect("a limit that was checked");
        Self { limiter, clock }
    }
}

impl Subject for InStore {
    fn check(&mut self, key: u64) -> Reply {
        let answer = now(self.limiter.check(&key.to_be_bytes())).expect("memory answers");
        Reply { decision: answer.decision, exact: Some(answer.guarantee == Guarantee::Exact) }
    }

    fn set(&mut self, now: Timestamp) {
        self.clock.set(now);
    }

    fn memory(&self) -> KeyMemory {
        self.limiter.store().memory()
    }
}

/// Returns the output of a future that is ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("memory answers at once"),
    }
}
