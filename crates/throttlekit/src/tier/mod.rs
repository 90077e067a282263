//! The leased limiter: a limit shared by processes, decided mostly by the node itself.
//!
//! [`SharedLimiter`](crate::SharedLimiter) calls the store for every request. A [`TwoTier`] fetches units in batches
//! and spends them locally, and remembers denials; one round trip then serves many requests, and all nodes still keep
//! one limit.
//!
//! ```
//! use std::time::Duration;
//! use throttlekit::{Limit, TwoTier, store::MemoryStore};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let limit = Limit::fixed_window(10_000, Duration::from_secs(60))?;
//! let limiter = TwoTier::builder(MemoryStore::new(), "api", limit).build()?;
//!
//! for _ in 0..1_000 {
//!     assert!(limiter.check("alice").await?.decision.allowed);
//! }
//! let calls = limiter.stats().store_calls();
//! assert!(calls < 100, "a thousand asks took {calls} calls");
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
//! | either, with [`carry`](TierBuilder::carry) | until it is spent | N·B beyond the limit, for N nodes that hold B |
//!
//! The bounds hold whatever the network loses, repeats or delays, and whenever a node crashes or stalls. The
//! assumptions of each bound are in the
//! [guarantees](https://github.com/throttlekit/throttlekit/blob/main/docs/guarantees.md).

mod builder;
mod engine;
mod fetch;
mod held_key;
mod key_state;
mod limiter;
mod returner;
mod stats;
mod table;

pub use builder::{Mode, TierBuilder};
pub use held_key::{HeldKey, Till};
pub use limiter::TwoTier;
pub use stats::TierStats;
pub use throttlekit_core::lease::{Batch, Margin, PredictiveSizer, Sizer, SizerOptions, SizingError};

#[cfg(all(test, loom))]
mod loom_tests;
