//! `slots-in-process`: the guarantees of a [`Guard`](throttlekit::Guard), over random sequences of all
//! operations.
//!
//! * [`Holds`] is any concurrency limit. [`Naive`] is a simple reference, with which every step of another is
//!   compared; with a [`SlotBug`] it is one that the invariant must find.
//! * [`examine`] runs random scenarios on a subject; [`find_seeded`] on each bug.
//! * [`keyed`] checks that no key ever exceeds its ceiling, whichever key is evicted.
//! * [`cancel`] drops futures after any number of polls, and lets work panic, and counts leaked slots.

pub mod cancel;
pub mod keyed;
mod naive;
mod scenario;
mod shipped;

pub use naive::{Naive, SlotBug};
pub use scenario::{Setup, examine, find_seeded};
pub use shipped::Shipped;
pub(crate) use shipped::panic_with;

/// A caller, as numbered in scenarios.
pub type Caller = usize;

/// The response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A slot was acquired.
    Come,
    /// The caller is queued.
    Wait,
    /// Neither.
    Full,
}

/// The outcome of work that held a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// Success.
    Success,
    /// Overloaded.
    Dropped,
    /// No information.
    Ignored,
    /// The permit was dropped without an outcome.
    Cancelled,
    /// The work panicked.
    Panicked,
}

/// The observable state of slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The limit.
    pub limit: u32,
    /// The number in flight.
    pub in_flight: u32,
    /// The number waiting.
    pub waiting: u32,
    /// Outcomes that were drops, so far.
    pub dropped: u64,
    /// Callers woken since the last snapshot, in ascending order.
    pub woken: Vec<Caller>,
}

/// A concurrency limit.
pub trait Holds {
    /// Requests a slot without waiting.
    fn ask(&mut self, who: Caller, priority: usize) -> Told;
    /// Requests a slot, or a place in the queue: the first poll.
    fn wait(&mut self, who: Caller, priority: usize) -> Told;
    /// Polls a waiting caller.
    fn poll(&mut self, who: Caller) -> Told;
    /// Removes a waiting caller.
    fn give_up(&mut self, who: Caller);
    /// Releases the slot of a caller.
    fn go(&mut self, who: Caller, how: Goes);
    /// Changes the limit.
    fn set_limit(&mut self, limit: u32);
    /// Returns the observable state.
    fn see(&mut self) -> Seen;
}
