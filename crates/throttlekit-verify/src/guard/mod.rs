//! `slots-in-process`: what a [`Guard`](throttlekit::Guard) promises, over random sequences of everything that can be done
//! to it.
//!
//! * [`Holds`] is anything that lets so many in at a time. [`Naive`] is one that can be read in a minute, and what every
//!   step of another is compared with; with a [`SlotBug`] it is one that the invariant must find.
//! * [`examine`] plays random scenarios against a subject; [`find_seeded`] against each bug.
//! * [`keyed`] holds that no key ever has more than its ceiling, whoever is dropped to make room.
//! * [`cancel`] drops futures after every number of polls, and lets work panic, and counts what is not given back.

pub mod cancel;
pub mod keyed;
mod naive;
mod scenario;
mod shipped;

pub use naive::{Naive, SlotBug};
pub use scenario::{Setup, examine, find_seeded};
pub use shipped::Shipped;
pub(crate) use shipped::panic_with;

/// Who asks, as the scenarios number them.
pub type Caller = usize;

/// The answer to an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A slot is theirs.
    Come,
    /// They are in line.
    Wait,
    /// Neither.
    Full,
}

/// How work goes away that held a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// It was done.
    Success,
    /// It was turned away.
    Dropped,
    /// It says nothing.
    Ignored,
    /// The permit was dropped without a word.
    Cancelled,
    /// It panicked.
    Panicked,
}

/// What can be seen of slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many may be in flight, are, and wait.
    pub limit: u32,
    /// How many are in flight.
    pub in_flight: u32,
    /// How many wait.
    pub waiting: u32,
    /// Endings that were drops, so far.
    pub dropped: u64,
    /// Who was woken since the last look, in order of their numbers.
    pub woken: Vec<Caller>,
}

/// Lets so many in at a time.
pub trait Holds {
    /// A slot now or not at all.
    fn ask(&mut self, who: Caller, priority: usize) -> Told;
    /// A slot now or in their turn; the first poll.
    fn wait(&mut self, who: Caller, priority: usize) -> Told;
    /// A poll of one who waits.
    fn poll(&mut self, who: Caller) -> Told;
    /// One who waits goes away.
    fn give_up(&mut self, who: Caller);
    /// One who holds a slot goes away.
    fn go(&mut self, who: Caller, how: Goes);
    /// Another limit.
    fn set_limit(&mut self, limit: u32);
    /// What can be seen now.
    fn see(&mut self) -> Seen;
}
