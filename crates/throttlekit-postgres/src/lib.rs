//! Limits that a fleet shares through PostgreSQL.
//!
//! A decision is one call of one function on the server: one round trip, also for several limits or several asks. The
//! function looks first and takes locks only for what may pass, so a denial neither locks nor writes. Time is the
//! server's, never that of the beginning of a transaction. What is promised, and what the settings of the server do to
//! it, is in
//! [docs/postgres.md](https://github.com/throttlekit/throttlekit/blob/main/docs/postgres.md).
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
//! let limiter = SharedLimiter::new(store, "api", Rate::per_minute(100).burst(10))?.on_outage(OnOutage::Open);
//! let answer = limiter.check("alice").await?;
//! println!("{} {}", answer.decision.allowed, answer.guarantee);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! * `tls`: encrypted connections through rustls with ring, by [`Builder::tls`].

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

pub use builder::{Builder, Durability};
pub use schema::{Report, Warning};
#[cfg(feature = "seeded")]
#[doc(hidden)]
pub use seeded::SeededBug;
pub use store::PostgresStore;
