//! Leasing: a limit shared by processes, decided mostly by the node itself.
//!
//! A strict [`SharedLimiter`](crate::SharedLimiter) calls the store for every request. A
//! [leased](crate::shared::SharedLimiterBuilder::leased) one fetches units in batches and spends them locally, and remembers
//! denials; one round trip then serves many requests, and all nodes still keep one limit. [`Leasing`] has the options.
//!
//! ```
//! use throttlekit::{Budget, SharedLimiter, store::MemoryStore};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let limiter =
//!     SharedLimiter::builder(MemoryStore::new(), "api", Budget::per_minute(10_000)).leased().build()?;
//!
//! for _ in 0..1_000 {
//!     assert!(limiter.check("alice").await?.allowed);
//! }
//! let calls = limiter.stats().leasing.store_calls();
//! assert!(calls < 100, "a thousand requests took {calls} calls");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! | limit | lifetime of lent units | admitted at most |
//! |---|---|---|
//! | window | until its window ends | the limit per window of the store's clock, for any number of nodes |
//! | smooth rate | for a hold time h | burst + rate·Δ + rate·h in any interval Δ, for any number of nodes |
//! | either, with [`carry`](Leasing::carry) | until it is spent | N·B beyond the limit, for N nodes that hold B |
//!
//! The bounds hold whatever the network loses, repeats or delays, and whenever a node crashes or stalls. The
//! assumptions of each bound are in the
//! [guarantees](https://github.com/throttlekit/throttlekit/blob/main/docs/reference/guarantees.md).

mod engine;
mod fetch;
mod key_state;
mod leased_key;
mod options;
mod returner;
mod stats;
mod table;
mod thread_cache;

pub(super) use engine::Engine;
pub use leased_key::LeasedKey;
pub use options::Leasing;
pub use stats::LeaseStats;
pub use thread_cache::ThreadCache;
pub use throttlekit_core::lease::{Batch, Margin, PredictiveSizer, Sizer, SizerOptions, SizingError};

#[cfg(all(test, loom))]
mod loom_tests;
