//! Concurrency limits: fixed, or inferred from latency.
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
//! # Guarantees
//!
//! * The number in flight never exceeds the limit that was in force at the last admission. A lower limit revokes
//!   nothing and admits nothing until the number in flight is below it.
//! * A slot is released exactly once: when the outcome of the work is reported, or when the permit is dropped. A permit
//!   that is dropped without an outcome counts as ignored, or as dropped if the thread is panicking.
//! * Waiters are served first come, first served within a [`Priority`], priorities in their order; no request overtakes a
//!   waiter of its own priority or an earlier one. A wait that is dropped leaks no slot and loses no turn.
//!
//! # Sampling
//!
//! Below 20,000 completed calls a second, every success is timed, in nanoseconds on [`BootClock`]. Above, one admission
//! in sixteen is timed; the others read no clock. It stays one in sixteen until the rate falls below 10,000 a second,
//! which the next timed one detects. A sample is lost if another one is being processed at the same moment. Drops are
//! counted and never lost; while one success in sixteen is a sample, sixteen drops count as one, so that the ratio of
//! outcomes is the true one.
//!
//! [`BootClock`]: crate::BootClock

mod builder;
mod count;
mod guarded;
mod key_guards;
mod keyed;
mod keyed_builder;
mod overflow;
mod permit;
mod priority;
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
pub use guarded::{Full, Guard, GuardStats};
pub use keyed::{KeyedFull, KeyedGuard, KeyedPermit};
pub use keyed_builder::KeyedGuardBuilder;
pub(crate) use permit::ending_without_a_word;
pub use permit::{OwnedPermit, Permit};
pub use priority::Priority;
pub use throttlekit_core::concurrency::{Ceiling, Ending};
pub use wait::Acquire;
