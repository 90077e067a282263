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
//! # What it promises
//!
//! * Each key's state lives in one value, with its window in it; time in a state never moves back, whatever the
//!   server's clock does. Expiry only collects garbage.
//! * No call is sent twice: one whose reply is lost may have charged, and ends as an outage. Only what the server
//!   says it did not run is sent on: to the node that a redirection names, or with the text of a script that it
//!   had forgotten.
//! * Replication is asynchronous: a failover may forget the last charges, so that a window admits the limit and as
//!   much again as was lost. [`Failover`] says what to do about it: count it, wait for replicas, or fence.
//!
//! # What it needs
//!
//! Redis 7.0 or Valkey 7.2 and later, `maxmemory-policy noeviction`, and a user that may run
//! `EVAL EVALSHA GET SET DEL TIME LRANGE LLEN LINDEX LREM LTRIM LSET RPUSH RPOP PEXPIRE INFO ROLE PING` on the keys `tk:*`
//! (to wait for replicas also `WAIT`, to fence `PTTL`, in a cluster `CLUSTER|SLOTS` and `ASKING`). [`Builder::connect`] checks this.

mod builder;
mod cluster;
mod connect;
mod connection;
mod debits;
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

pub use builder::Builder;
pub use exposure::Exposure;
pub use failover::Failover;
pub use hash_slot::slot_of;
pub use route::RouteStats;
pub use script::{ADMIT as ADMIT_SCRIPT, FENCED_ADMIT as FENCED_ADMIT_SCRIPT};
pub use server_check::Warning;
pub use store::RedisStore;

/// The guide's code, compiled as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/redis.md")]
struct Guide;
