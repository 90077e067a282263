//! Concurrency limits: fixed, or inferred from latency; in this process, or shared by several.
//!
//! ```
//! use throttlekit::{Concurrency, Guard};
//!
//! let backend = Guard::new(Concurrency::adaptive(4..=200))?;
//! let permit = backend.try_acquire(())?; // denied: respond with 503, or wait with `acquire`
//! match call_backend() {
//!     Ok(()) => permit.success(),                // its latency is a sample
//!     Err("timed out") => permit.dropped(),      // the backend was overloaded: the limit falls
//!     Err(_) => permit.ignored(),                // no sample; the same as a permit that is only dropped
//! }
//! # fn call_backend() -> Result<(), &'static str> { Ok(()) }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! * The number in flight never exceeds the limit that was in force at the last admission. A lower limit revokes
//!   nothing and admits nothing until the number in flight is below it.
//! * A slot is released exactly once: when the outcome of the work is reported, or when the permit is dropped. A permit
//!   that is dropped without an outcome counts as ignored, or as dropped if the thread is panicking.
//! * Waiters are served first come, first served within a [`Priority`], priorities in their order; no request overtakes
//!   a waiter of its own priority or an earlier one. A wait that is dropped leaks no slot and loses no turn.
//!
//! # Sampling
//!
//! Below 20,000 completed calls a second, every success is timed, in nanoseconds on [`BootClock`]. Above, one admission
//! in sixteen is timed; the others read no clock. It stays one in sixteen until the rate falls below 10,000 a second,
//! which the next timed one detects. A sample is lost if another one is being processed at the same moment. Drops are
//! counted and never lost; while one success in sixteen is a sample, sixteen drops count as one, so that the ratio of
//! outcomes is the true one.
//!
//! # Shared by several processes
//!
//! `SharedGuard` (feature `store`) has two modes. Slots on the store, each held under a lease: one round trip for each
//! call. Or a limit that is divided over the nodes: each admits its share without a round trip.
//!
//! [`BootClock`]: crate::clock::BootClock

mod admit;
mod builder;
mod count;
#[cfg(feature = "store")]
mod divided;
mod handle;
mod key_guards;
mod keyed;
#[cfg(feature = "store")]
pub(crate) mod lease_registry;
mod overflow;
mod permit;
mod priority;
mod sampling;
mod settings;
#[cfg(feature = "store")]
mod shared;
mod single;
#[cfg(feature = "store")]
mod slot_leases;
mod slots;
mod stats;
mod tuner;
mod wait;
mod wait_queue;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use builder::GuardBuilder;
#[cfg(feature = "store")]
pub use divided::{DivisionStats, SharePermit};
pub use handle::Guard;
pub use keyed::KeyedGuard;
pub(crate) use permit::ending_without_outcome;
pub use permit::{GuardPermit, OwnedGuardPermit};
#[cfg(feature = "store")]
pub use shared::{DividedGuardBuilder, SharedGuard, SharedGuardBuilder, SharedGuardPermit, SharedGuardStats};
pub(crate) use single::decision;
#[cfg(feature = "store")]
pub use slot_leases::SlotStats;
pub use stats::GuardStats;
#[cfg(feature = "store")]
pub use throttlekit_core::concurrency::division::{Combine, Grant, Split};
pub use throttlekit_core::concurrency::{Ceiling, Ending};

pub use crate::admit::Denied;
#[cfg(feature = "store")]
pub use crate::fence::Fenced;
pub use crate::priority::Priority;
