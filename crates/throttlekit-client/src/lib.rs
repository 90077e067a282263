//! Rust client of a ThrottleKit server: call it for every decision, or lease units and decide in process.
//!
//! A [`Client`] connects to one server or to several that share a store. It creates
//!
//! * [`RemotePolicy`], which calls the server for every request: rates, budgets, and work that holds a slot while it
//!   runs;
//! * [`FleetLimiter`], which leases units in batches and spends them in this process. It is the library's
//!   leased [`SharedLimiter`](throttlekit::SharedLimiter) over a [`RemoteStore`], so its bounds are those of the guarantee
//!   `lease-coupled`.
//!
//! ```no_run
//! use throttlekit_client::{Client, Rate};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder("http://127.0.0.1:50051").build()?;
//!
//! let api = client.limiter("api");
//! if !api.check("alice").await?.decision.allowed {
//!     return Ok(());
//! }
//!
//! // The same policy, decided here: one call for each batch.
//! let fleet = client.fleet("api", Rate::per_second(1_000)).build()?;
//! assert!(fleet.check("alice").await?.decision.allowed);
//! # Ok(())
//! # }
//! ```
//!
//! A denial is a normal response. An error means that nothing was decided: every call has a timeout, a circuit breaker
//! keeps an outage cheap, and [`OnOutage`] selects the fallback. Nothing is sent twice unless it is idempotent: debits
//! with an id, releases and heartbeats.
//!
//! Both implement [`Admit`](throttlekit::Admit), so they work in the library's tower layer.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admission;
mod admit;
mod answer;
mod builder;
mod channels;
mod client;
mod error;
mod fleet;
mod limiter;
mod limiter_builder;
mod permit;
mod renewer;
mod returns;
mod store;
mod stream;
mod token;
mod wire;

pub use admission::{RemoteAdmission, Work};
pub use answer::RemoteAnswer;
pub use builder::{BuildError, ClientBuilder};
pub use client::Client;
pub use error::ClientError;
pub use fleet::{FleetBuilder, FleetKey, FleetLimiter};
pub use limiter::{KEYS_AT_ONCE_MAX, RemotePolicy};
pub use limiter_builder::LimiterBuilder;
pub use permit::RemotePermit;
pub use store::RemoteStore;
pub use stream::RemoteStream;
pub use throttlekit::leasing::{Batch, Leasing, Margin};
pub use throttlekit::store::DebitId;
pub use throttlekit::{Axis, Call, Decision, Guarantee, Limit, OnOutage, Rate, Retry};

/// The README's code, run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
