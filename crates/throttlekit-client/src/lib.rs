//! A ThrottleKit server from Rust: ask it, or lease from it and decide in process.
//!
//! A [`Client`] is the way to one server or to several that share a store. On it stand
//!
//! * [`RemoteLimiter`], which asks about every ask: rates, budgets, and work that holds a slot while it runs;
//! * [`FleetLimiter`], which reserves units in batches and spends them in this process. It is the library's
//!   [`TwoTier`](throttlekit::TwoTier) over a [`RemoteStore`], so its bounds are those of the law `lease-coupled`.
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
//! A denial is an answer. An error means that nothing was decided: every call has a deadline, a breaker keeps an outage
//! cheap, and [`OnOutage`] says what is answered meanwhile. Nothing is sent twice unless it counts once: debits with a
//! name, releases and heartbeats.
//!
//! # Features
//!
//! * `http`: [`RemoteLimiter`] and [`FleetLimiter`] behind the library's tower layer. Off by default.

mod admission;
mod answer;
mod builder;
mod channels;
mod client;
mod error;
mod fleet;
#[cfg(feature = "http")]
mod layer;
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
pub use limiter::{KEYS_AT_ONCE_MAX, RemoteLimiter};
pub use limiter_builder::LimiterBuilder;
pub use permit::RemotePermit;
pub use store::RemoteStore;
pub use stream::RemoteStream;
pub use throttlekit::store::DebitId;
pub use throttlekit::tier::{Batch, Margin, Mode};
pub use throttlekit::{Ask, Axis, Cost, Decision, Guarantee, Limit, OnOutage, Rate, Retry};
