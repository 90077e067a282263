//! Concurrency: at most so many at a time, and an inference of how many that should be.
//!
//! ```
//! use throttlekit::Guard;
//! use throttlekit::guard::Ceiling;
//!
//! let backend = Guard::adaptive(Ceiling::between(4, 200));
//! let Ok(permit) = backend.try_acquire() else {
//!     return; // full: answer 503, or wait with `acquire`
//! };
//! match call_backend() {
//!     Ok(()) => permit.success(),                // how long it took is learnt
//!     Err("timed out") => permit.dropped(),      // the backend was too full: the ceiling falls
//!     Err(_) => permit.ignored(),                // says nothing of the backend; so does a permit that is just dropped
//! }
//! # fn call_backend() -> Result<(), &'static str> { Ok(()) }
//! ```
//!
//! # What is promised
//!
//! * Never more in flight than the limit that was in force when the last was let in. A limit that falls takes nothing
//!   back and lets nobody in until there is room below it.
//! * A slot is given back exactly once: by the word on how work ended, or by the drop of the permit. A permit that is
//!   dropped without a word counts as ignored, or as dropped if the thread is panicking.
//! * Who waits is served in the order of coming within a [`Class`], classes in theirs; nobody overtakes a waiter of the
//!   own class or one before it. A wait that is dropped leaks no slot and loses no turn.
//!
//! # What is sampled
//!
//! While fewer than 20,000 endings a second come, every success is timed, in nanoseconds on [`BootClock`]. While more
//! do, one admission in sixteen is timed; the others read no clock. It is one in sixteen until fewer than 10,000 a second
//! come again, which the next timed one notices. A sample that finds another being learnt at that very moment is lost.
//! Drops are counted and never lost; while one success in sixteen is a sample, sixteen drops teach what one does
//! otherwise, so that their part of all endings is the true one.
//!
//! [`BootClock`]: crate::BootClock

mod builder;
mod class;
mod count;
mod guarded;
mod key_guards;
mod keyed;
mod keyed_builder;
mod overflow;
mod permit;
mod sampling;
mod slots;
mod tuner;
mod wait;
mod wait_queue;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use builder::{GuardBuilder, GuardLimit};
pub use class::Class;
pub use guarded::{Full, Guard, GuardStats};
pub use keyed::{KeyedFull, KeyedGuard, KeyedPermit};
pub use keyed_builder::KeyedGuardBuilder;
pub use permit::{OwnedPermit, Permit};
pub use throttlekit_core::concurrency::{Ceiling, Ending};
pub use wait::Acquire;
