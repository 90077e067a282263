//! Admission control for APIs and language-model gateways: may this request pass now, and if not, when?
//!
//! * Rates: in one process with exact integer arithmetic, memory fixed by a cap, and a check that neither blocks on I/O
//!   nor allocates if a key's state is one word; across processes with the same decisions from a shared store, one
//!   round trip per request or per batch.
//! * Concurrency: a [`Guard`], whose limit is fixed or follows how long work takes.
//! * Tokens: budgets that streams debit as they go.
//!
//! A [`Policy`] checks all axes in one call and returns one permit to settle.
//!
//! ```
//! use throttlekit::{Limiter, Rate, Retry};
//!
//! let limiter = Limiter::new(Rate::per_minute(10))?;
//!
//! let first = limiter.check("alice");
//! assert!(first.allowed && first.remaining == 9);
//!
//! let upload = limiter.check(("alice", 11));
//! assert_eq!(upload.retry_after, Retry::Never, "eleven units never fit a limit of ten");
//! # Ok::<(), throttlekit::BuildError>(())
//! ```
//!
//! # Choosing a type
//!
//! | need | type |
//! |---|---|
//! | several axes for one request: concurrency, rate, tokens | [`Policy`]; `SharedPolicy` if an axis is in a store |
//! | one limit, or several as an atomic group, over many keys: users, tenants, addresses | [`Limiter`] |
//! | one limit without keys: a route, a backend, the process | [`Limiter::keyless`] |
//! | one budget that many tenants share by weight | [`FairLimiter`] |
//! | the same budget in several regions or processes | `SharedFairLimiter`, with the feature `store` and a store |
//! | budgets that run short, and requests that differ in value | [`Pricer`], before the limits |
//! | one limit, or several, that many processes share | `SharedLimiter`, with the feature `store` and a store |
//! | the same with much traffic on one limit | `SharedLimiter::builder(…).leased()`, which leases units in batches and spends them in process |
//! | more keys than there is memory for: every address of a flood | [`Limiter`] with a [sketch](limiter::Sketch) |
//! | a backend that refuses calls when it is full | [`AdaptiveThrottle`](overload::AdaptiveThrottle) |
//! | a backend that slows down under too much concurrency | [`Guard`]; [`KeyedGuard`] for each of many |
//! | tokens of a language model, spent by streams whose length is not known | `TokenBudget`, with the feature `store` |
//! | a concurrency limit for each of many keys, shared by processes | `SharedSlots`, with the feature `store` |
//! | one concurrency limit shared by many processes | `FleetGuard`, with the feature `store` and a store |
//! | a service in axum, tonic, hyper or tower | `http::AdmissionLayer`, with the feature `http` |
//!
//! Each returns a [`Decision`], and a denial is a decision, not an error. The only error is a [`LimitError`], for a
//! description that cannot be a limit; it occurs once, when the limiter is built. Share any of them by reference or in
//! an `Arc`.
//!
//! # Choosing a rule
//!
//! A [`Rate`] becomes GCRA, the right choice unless you need another. [`Limit`] has the others: token and leaky bucket,
//! fixed and calendar windows, token budgets, sliding window and sliding log. The guarantees of each are in the
//! [guarantees](https://github.com/throttlekit/throttlekit/blob/main/docs/guarantees.md).
//!
//! # Options
//!
//! [`Limiter::builder`] sets
//!
//! * the memory for keys ([`memory_budget`](limiter::LimiterBuilder::memory_budget)), by default 128 MiB; beyond it
//!   keys are estimated, and none gets a new budget;
//! * the clock: [`SystemClock`] picks one that suits the limit, [`CoarseClock`] is cheaper to read and up to a
//!   tick late, [`ManualClock`] is for tests;
//! * the hash of keys: [`SecretHash`] for keys chosen by untrusted clients, [`TrustedHash`] for keys that you choose.
//!
//! # Features
//!
//! * `prefetch`: the processor prefetches the memory of keys, on x86 and aarch64. On by default.
//! * `store`: limits shared by several processes, over any implementation of the trait `store::Store`: the crates
//!   `throttlekit-redis` and `throttlekit-postgres`, or `store::MemoryStore`. Off by default.
//! * `wait`: waiting for a slot with a timeout, by tokio's timer. Comes with `store`. Off by default.
//! * `http`: the tower layer and its keys, headers and responses. Off by default; none of its dependencies is built
//!   without it.
//! * `axum`: the peer's address from axum's `ConnectInfo`; enables `http`. Off by default.
//! * `full`: all of these.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use]
mod macros;

pub mod admission;
pub mod admit;
#[cfg(feature = "store")]
mod background;
#[cfg(feature = "store")]
pub mod budget;
mod call;
pub mod clock;
mod error;
pub mod fair;
mod fence;
#[cfg(feature = "store")]
pub mod fleet;
mod guarantee;
pub mod guard;
pub mod hash;
#[cfg(feature = "http")]
pub mod http;
pub mod limiter;
mod memory;
pub mod overload;
pub mod price;
pub mod rate;
#[cfg(feature = "store")]
mod shared;
#[cfg(feature = "store")]
pub mod slots;
#[cfg(feature = "store")]
pub mod store;
mod store_error;
mod sync;

pub use admission::Policy;
#[cfg(feature = "store")]
pub use admission::SharedPolicy;
pub use admit::{Admission, Admit, Axes, Axis, SharedPermit};
#[cfg(feature = "store")]
pub use budget::{TokenBudget, TokenStream};
pub use call::Call;
#[cfg(target_os = "linux")]
pub use clock::TickClock;
pub use clock::{
    BootClock, Clock, CoarseClock, LeaseClock, ManualClock, PreciseClock, SystemClock, WallClock,
};
pub use error::BuildError;
pub use fair::FairLimiter;
#[cfg(feature = "store")]
pub use fair::SharedFairLimiter;
#[cfg(feature = "store")]
pub use fleet::FleetGuard;
pub use guarantee::Guarantee;
pub use guard::{Guard, KeyedGuard};
pub use hash::{KeyHash, SecretHash, TrustedHash};
pub use limiter::Limiter;
pub use overload::MergeableSketch;
pub use price::Pricer;
#[cfg(feature = "store")]
pub use shared::{
    Answer, OnOutage, Receipt, SharedLimiter, SharedLimiterBuilder, SharedLimiterStats, Tally, leasing,
};
#[cfg(feature = "store")]
pub use slots::{HeldSlot, LeaseRegistry, SharedSlots};
pub use throttlekit_core::rate::{Budget, Cadence, Limit, LimitError, Rate, Weekday};
pub use throttlekit_core::{ALLOW_FULL, Cost, Decision, Forecast, Retry, Timestamp, combine};

/// Parts shared with the other crates of the workspace. Not public API.
#[doc(hidden)]
pub mod internals {
    pub use crate::sync::{Mutex, MutexGuard, RwLock};
}

/// The repository's README, run as doc tests. It shows the tower layer and a shared limiter too, so it needs both
/// features.
#[cfg(all(doctest, feature = "http", feature = "store"))]
#[doc = include_str!("../../../README.md")]
struct RepositoryReadme;

/// The crate's README, likewise.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The page about token budgets, likewise.
#[cfg(all(doctest, feature = "store"))]
#[doc = include_str!("../../../docs/budgets.md")]
struct Budgets;
