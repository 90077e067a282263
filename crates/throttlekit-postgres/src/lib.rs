//! Rate limits shared by many processes through PostgreSQL.
//!
//! A decision is one call of one function on the server: one round trip, also for several limits or several requests.
//! The function reads first and locks only rows of limits that may allow, so a denial neither locks nor writes. Time is
//! the server's, never that of the start of a transaction. For the guarantees, and the effect of server settings on
//! them, see
//! [docs/operate/postgres.md](https://github.com/throttlekit/throttlekit/blob/main/docs/operate/postgres.md).
//!
//! ```no_run
//! use std::time::Duration;
//! use throttlekit::{OnOutage, Rate, SharedLimiter};
//! use throttlekit_postgres::PostgresStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = PostgresStore::builder("postgres://app@localhost/app")
//!     .migrate_on_connect(true)
//!     .deadline(Duration::from_millis(250))
//!     .connect()
//!     .await?;
//! store.sweep_every(Duration::from_secs(60));
//!
//! let limiter = SharedLimiter::builder(store, "api", Rate::per_minute(100).burst(10)).on_outage(OnOutage::Open).build()?;
//! let answer = limiter.check("alice").await?;
//! println!("{} {}", answer.decision.allowed, answer.guarantee);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! All off by default.
//!
//! * `tls`: encrypted connections through rustls, by [`PostgresStoreBuilder::tls`]. The crypto provider is that of the configuration.
//! * `tls-ring`, `tls-aws-lc-rs`: the same, and rustls is built with that provider.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod batch;
mod batcher;
mod builder;
mod connect;
mod connections;
mod debits;
mod error;
mod leases;
mod lineage;
mod membership;
mod owned_params;
mod pool;
mod primaries;
mod probe;
mod schema;
mod seeded;
mod slots;
mod store;
mod store_connections;
mod sweep;

pub use builder::{Durability, PostgresStoreBuilder};
pub use schema::{SchemaReport, SchemaWarning};
#[cfg(feature = "seeded")]
#[doc(hidden)]
pub use seeded::SeededBug;
pub use store::PostgresStore;

/// The README's code, run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
