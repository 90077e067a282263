//! ThrottleKit over Redis and Valkey: one server, Sentinel or Cluster, with or without TLS.
//!
//! A decision is one script call, whatever its mix of rules: it reads the server's clock, decides over all charges
//! and writes all or none. Concurrent callers share one pipelined connection per node.
//!
//! ```no_run
//! use throttlekit::{Rate, SharedLimiter};
//! use throttlekit_redis::RedisStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::builder("redis://127.0.0.1:6379").connect().await?;
//! let limiter = SharedLimiter::new(store, "api", Rate::per_minute(100).burst(10))?;
//!
//! let answer = limiter.check("alice").await?;
//! if !answer.decision.allowed {
//!     println!("come back in {:?}", answer.decision.retry_after.wait());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! * Each key's state is one value that includes its window. Time in a state never moves back, whatever the server's
//!   clock does. Expiry is only garbage collection.
//! * No call is sent twice: one whose reply is lost may have charged, and ends as an outage. Only calls that the server
//!   reports as not run are sent again: to the node that a redirection names, or with the text of a script that is not
//!   cached.
//! * Replication is asynchronous: a failover may lose the last charges, so that a window admits the limit plus the lost
//!   units. [`Failover`] selects how to handle that: count, wait for replicas, or fence.
//!
//! # Requirements
//!
//! Redis 7.0 or Valkey 7.2 and later, `maxmemory-policy noeviction`, and a user that may run
//! `EVAL EVALSHA GET SET DEL TIME LRANGE LLEN LINDEX LREM LTRIM LSET RPUSH RPOP PEXPIRE INFO ROLE PING` on the keys
//! `tk:*` (to wait for replicas also `WAIT`, to fence `PTTL`, in a cluster `CLUSTER|SLOTS` and `ASKING`).
//! [`RedisStoreBuilder::connect`] checks this.
//!
//! # Features
//!
//! All off by default.
//!
//! * `tls-ring`: `rediss://` addresses over rustls with ring. Connecting installs ring as the crypto provider of the
//!   process, unless the process has installed one.
//! * `tls-aws-lc-rs`: the same with aws-lc-rs. If both are enabled, ring is used.
//! * `tls`: the same without a provider. The process must install one with
//!   `rustls::crypto::CryptoProvider::install_default` before it connects; otherwise connecting returns an error.
//! * `full`: `tls-ring`.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod cluster;
mod connect;
mod connection;
mod debits;
mod deferring;
mod error;
mod exposure;
mod failover;
mod fence;
mod forgotten_charges;
mod hash_slot;
mod lineage;
mod membership;
mod node;
mod pool;
mod replication;
mod request;
mod route;
mod script;
mod sentinel;
mod server_check;
mod slots;
mod store;
mod unreplicated;
mod wire;

pub use builder::RedisStoreBuilder;
pub use exposure::Exposure;
pub use failover::Failover;
pub use hash_slot::slot_of;
pub use route::RouteStats;
pub use script::{ADMIT as ADMIT_SCRIPT, FENCED_ADMIT as FENCED_ADMIT_SCRIPT};
pub use server_check::Warning;
pub use store::RedisStore;

/// The README's code, run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
