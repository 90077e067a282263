//! Waiting for a limiter, in order: a bounded, first-come, first-served queue in front of anything that is [`Admit`].
//!
//! ```
//! use throttlekit::{Limiter, Rate};
//! use throttlekit::wait::Queue;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let provider = Queue::new(Limiter::new(Rate::per_second(100))?);
//! for _ in 0..3 {
//!     let admission = provider.until_ready("model-a").await?; // sleeps for as long as the limit requires
//!     // call the provider here, then report the outcome:
//!     admission.into_permit()?.success();
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Queue`] takes limiters, guards and policies, in process, shared and remote. It implements [`Admit`] itself, so the
//! tower layer over a queue waits as well.
//!
//! # Order
//!
//! Guarantee `turn-order`, for the waiters of one key in one process:
//!
//! * Waiters of one priority ([`Call::priority`](crate::Call::priority)) are served in the order in which they joined,
//!   whatever they cost: a cheap request does not overtake an expensive one. A call joins when the limiter denies it, or
//!   at once if others of its key wait already.
//! * The most urgent priority goes first, except that one turn in four goes to the longest waiter. A turn ends when its
//!   holder leaves. A waiter that joins as number `p` in the queue of its key has left after at most `4·p` turns.
//! * Only the waiter whose turn it is requests the limiter. If denied, it sleeps for the exact `retry_after` and requests
//!   again; the others only wait for their turn. So each key and process has one request at a time, and about two for
//!   each admission.
//! * A waiter that is admitted, fails, times out or is dropped passes its turn on at once and leaves nothing behind.
//! * A waiter whose runtime stops is passed over after one second, which another waiter notices within 250 ms. It keeps
//!   its position for the case that its runtime continues.
//!
//! Waiters of different keys do not wait for each other. A key takes memory only while a call of it waits.
//!
//! # Waits
//!
//! Waits are as exact as tokio's timer, which rounds up to a millisecond. Above 1,000 requests a second, give the rate a
//! burst of a few milliseconds, or the timer limits the throughput.
//!
//! No clock determines when a concurrency limit has a free slot ([`Retry::OnRelease`](crate::Retry::OnRelease)). The
//! waiter whose turn it is joins the limiter's own queue for slots
//! ([`Admit::admit_queued`](crate::Admit::admit_queued)) and keeps its turn there, so that an urgent call that arrives
//! meanwhile is next. Where the limiter has no such queue, it retries after pauses that double from 1 ms to 8 ms; to
//! 128 ms if the limiter needs I/O.
//!
//! A shaper (leaky bucket) admits at once and states when to start; [`Queue::until_ready`] sleeps until then.
//!
//! # Runtime
//!
//! A call that does not have to wait needs no runtime unless its limiter does. A wait needs a tokio runtime with time
//! enabled. Waiters may be on different runtimes.
//!
//! [`Admit`]: crate::Admit

mod admit;
mod builder;
mod key_queues;
mod not_ready;
mod position;
mod queue;
mod verdict;
mod waiter;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use builder::QueueBuilder;
pub use not_ready::NotReady;
pub use queue::Queue;
#[cfg(feature = "outbound")]
pub(crate) use waiter::First;
