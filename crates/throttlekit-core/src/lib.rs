//! The rules of admission control, pure: state in, time in, decision out.
//!
//! Nothing here reads a clock, allocates behind your back on a hot path, locks, logs, sleeps or draws a random
//! number. `no_std` holds the crate to it: there is no clock, thread or socket to reach for.
//!
//! * [`Decision`] is the response of every axis, and [`combine`] merges several into one.
//! * [`rate`] holds the rate rules. Each is a [`rate::Rule`]: it decides from a borrowed state, so a denial
//!   cannot write, and charges only what it allowed.
//! * [`rate::Limit`] is the closed set of rules that every store can run.
//! * [`fair`] shares one budget among many tenants, each by its weight.
//! * [`lease`] lends parts of a limit to nodes, which spend them locally.
//! * [`price`] denies requests whose value is below the price of the budget they would use. Prices are computed in
//!   floats and only ever remove admits.
//! * [`overload`] sheds calls to a backend that is full, and limits more keys than there is memory for.
//! * [`turn`] decides whose turn it is among callers that wait for a limiter.
//! * [`learn`] holds the learners that size leases. They compute in floats and decide nothing.
//!
//! ```
//! use throttlekit_core::{Timestamp, rate::{Limit, Rate, Rule, State}};
//!
//! let limit = Limit::gcra(Rate::per_minute(60).burst(2))?;
//! let mut alice = State::default();
//! let noon = Timestamp::from_millis(1_800_000_000_000);
//!
//! assert!(limit.check(&mut alice, 1, noon).allowed);
//! assert!(limit.check(&mut alice, 1, noon).allowed);
//! let denied = limit.check(&mut alice, 1, noon);
//! assert_eq!(denied.retry_after.wait_ms(), Some(1_000));
//! # Ok::<(), throttlekit_core::rate::LimitError>(())
//! ```
#![no_std]

extern crate alloc;

pub mod concurrency;
mod decision;
pub mod fair;
pub mod learn;
pub mod lease;
pub mod overload;
pub mod price;
pub mod rate;
mod time;
pub mod turn;

pub use decision::{ALLOW_FULL, Decision, Forecast, Retry, combine};
pub use time::Timestamp;

/// Units requested: requests, bytes, or anything else the limit counts.
///
/// Zero is a valid cost that changes nothing; the decision reports what is left.
pub type Cost = u64;

/// The README's code, run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
