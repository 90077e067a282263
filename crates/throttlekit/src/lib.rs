//! Admission control for APIs and language-model gateways: rate, concurrency and cost in one decision.
//!
//! ```
//! use throttlekit::{Limiter, Rate};
//!
//! let limiter = Limiter::new(Rate::per_minute(100).burst(10))?;
//! if !limiter.check("alice").allowed {
//!     // respond with 429
//! }
//! # Ok::<(), throttlekit::BuildError>(())
//! ```
//!
//! # The ladder
//!
//! Each step changes one or two lines of the step before.
//!
//! **1. One process.** The program above: a [`Rate`] for each key. `check` takes tens of nanoseconds, does not block and
//! does not allocate.
//!
//! **2. Several limits at once.** All must allow, or none is charged.
//!
//! ```
//! use throttlekit::{Budget, Limiter, Rate};
//!
//! let limiter = Limiter::builder(Rate::per_minute(100).burst(10))
//!     .limit("daily", Budget::per_day(10_000))
//!     .build()?;
//! assert!(limiter.check("alice").allowed);
//! # Ok::<(), throttlekit::BuildError>(())
//! ```
//!
//! **3. Several processes.** A store counts, and `SharedLimiter` (feature `store`) replaces [`Limiter`]. Stores are
//! `throttlekit-redis`, `throttlekit-postgres`, and `store::MemoryStore` for tests.
//!
#![cfg_attr(feature = "store", doc = "```")]
#![cfg_attr(not(feature = "store"), doc = "```ignore")]
//! use throttlekit::{Budget, Rate, SharedLimiter, store::MemoryStore};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let store = MemoryStore::new(); // or RedisStore::connect("redis://…").await?
//! let limiter = SharedLimiter::builder(store, "api", Rate::per_minute(100).burst(10))
//!     .limit("daily", Budget::per_day(10_000))
//!     .build()?;
//! assert!(limiter.check("alice").await?.allowed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **4. Leased.** Units are fetched in batches and spent in process: few round trips, the same bound.
//!
#![cfg_attr(feature = "store", doc = "```")]
#![cfg_attr(not(feature = "store"), doc = "```ignore")]
//! use throttlekit::{OnOutage, Rate, SharedLimiter, store::MemoryStore};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! # let store = MemoryStore::new();
//! let limiter = SharedLimiter::builder(store, "api", Rate::per_minute(100))
//!     .leased()
//!     .on_outage(OnOutage::Open)
//!     .build()?;
//! assert!(limiter.check("alice").await?.allowed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **5. Three axes.** A policy decides over concurrency, rate and tokens in one call. The permit holds the slot, counts
//! tokens as they stream and settles the reservation when it is dropped.
//!
#![cfg_attr(feature = "store", doc = "```")]
#![cfg_attr(not(feature = "store"), doc = "```ignore")]
//! use throttlekit::{Budget, Call, Concurrency, Rate, SharedPolicy, store::MemoryStore};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! # let (store, chunk_tokens) = (MemoryStore::new(), 20);
//! let chat = SharedPolicy::builder(store, "chat")
//!     .concurrency(Concurrency::per_key(8))
//!     .rate(Rate::per_minute(60))
//!     .tokens(Budget::per_minute(100_000))
//!     .build()?;
//! let mut permit = chat.admit(Call::by("acme").cost(1_500)).await?.into_permit()?; // the error names the axis
//! permit.debit(chunk_tokens).await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **6. Fairness.** Add `.fair(Budget::per_minute(1_000_000))` to the policy: tenants share it by weight, and what one
//! does not use the others get.
//!
//! In a web service, one line of tower does all this (feature `http`):
//!
#![cfg_attr(feature = "http", doc = "```")]
#![cfg_attr(not(feature = "http"), doc = "```ignore")]
//! use throttlekit::http::{AdmissionLayer, header};
//!
//! let layer = AdmissionLayer::per_minute(60, header("x-api-key"))?;
//! # let _ = layer;
//! # Ok::<(), throttlekit::BuildError>(())
//! ```
//!
//! # Values, limiters, results
//!
//! | kind | types |
//! |---|---|
//! | values: what is allowed | [`Rate`], [`Budget`], [`Concurrency`], [`Limit`] |
//! | limiters: what decides | [`Limiter`], [`Guard`], [`FairLimiter`], [`Policy`]; over a store `SharedLimiter`, `SharedGuard`, `SharedFairLimiter`, `SharedPolicy` |
//! | results | [`Decision`]; `Answer` adds the guarantee, the receipt and the outage; [`Admission`] adds the axes and a permit |
//!
//! `X::new(required)?` builds with the defaults, `X::builder(required)…build()?` with choices. A denial is a result, not
//! an error. [`BuildError`] is reported once, where a limiter is built.
//!
//! # Choosing a rule
//!
//! A [`Rate`] is a smooth rate with a burst (GCRA), the right choice unless another is required. A [`Budget`] counts in
//! fixed windows: a minute, a calendar day or month. [`Limit`] has the others: token and leaky bucket, sliding window and
//! sliding log. The [guarantees](https://github.com/throttlekit/throttlekit/blob/main/docs/reference/guarantees.md) state the bound
//! of each.
//!
//! # Features
//!
//! * `prefetch`: prefetches the memory of keys, on x86 and aarch64. On by default.
//! * `store`: the shared limiters, over any implementation of `store::Store`.
//! * `wait`: waiting for a limiter (`wait::Queue`) or a slot, with a timeout, by tokio's timer. Comes with `store`.
//! * `http`: the tower layer, key extractors and headers.
//! * `axum`: the peer's address from axum's `ConnectInfo`; enables `http`.
//! * `time-zones`: quotas by the clocks of a named time zone (`time_zone`); `time-zones-embedded` needs no files for it.
//! * `outbound`: pacing calls to providers and learning their limits from responses; enables `http` and `wait`.
//! * `full`: all of these.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use]
mod macros;

pub mod admit;
mod allowed;
#[cfg(feature = "store")]
mod background;
#[cfg(feature = "store")]
pub mod budget;
mod call;
pub mod clock;
mod concurrency;
mod error;
pub mod fair;
mod fence;
mod guarantee;
pub mod guard;
pub mod hash;
#[cfg(feature = "http")]
pub mod http;
mod limit_name;
pub mod limiter;
mod memory;

/// Observers of decisions.
pub mod observe {
    pub use crate::admit::{Event, Observed, Observer};
}

#[cfg(feature = "outbound")]
pub mod outbound;
pub mod overload;
pub mod policy;
pub mod price;
mod priority;
pub mod rate;
#[cfg(feature = "store")]
mod shared;
#[cfg(feature = "store")]
pub mod store;
mod store_error;
mod sync;
#[cfg(feature = "time-zones")]
pub mod time_zone;
#[cfg(feature = "wait")]
pub mod wait;

pub use admit::{Admission, Admit, Axis, SharedPermit};
pub use call::Call;
pub use concurrency::Concurrency;
pub use error::BuildError;
pub use fair::FairLimiter;
#[cfg(feature = "store")]
pub use fair::SharedFairLimiter;
pub use guarantee::Guarantee;
pub use guard::Guard;
#[cfg(feature = "store")]
pub use guard::SharedGuard;
pub(crate) use limit_name::LimitName;
pub use limiter::Limiter;
#[cfg(feature = "store")]
pub use policy::SharedPolicy;
pub use policy::{Permit, Policy};
pub(crate) use priority::Priority;
#[cfg(feature = "store")]
pub use shared::{Answer, OnOutage, SharedLimiter, leasing};
pub use store_error::StoreError;
pub use throttlekit_core::rate::{Budget, Limit, Rate};
pub use throttlekit_core::{Decision, Retry};

/// Parts shared with the other crates of the workspace. Not public API.
#[doc(hidden)]
pub mod internals {
    #[cfg(feature = "store")]
    pub use crate::budget::learners::Learners;
    #[cfg(feature = "store")]
    pub use crate::guard::lease_registry::{Ends, LeaseRegistry};
    pub use crate::sync::{Mutex, MutexGuard, RwLock};

    /// Server-sent events.
    #[cfg(feature = "outbound")]
    pub mod sse {
        pub use crate::outbound::sse::{DONE, Event, Events, TooLong, event};
    }
}

/// The crate's README, likewise.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
