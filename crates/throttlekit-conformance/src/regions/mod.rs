//! A pool that several regions fetch from, on a store, is the one in process.
//!
//! [`examine_pool`] runs traces against a [`RegionStore`](throttlekit::store::RegionStore) and against the pure
//! [`Pool`](throttlekit_core::fair::pool::Pool), and compares every grant.

mod pool_storm;
mod pool_world;
mod same_pool;
mod seeded_pool;
mod tenants_storm;

pub use pool_storm::{PoolContention, pool_storm};
pub use pool_world::{PoolOperation, PoolWorld};
pub use same_pool::{PoolReport, examine_pool, find_pool_bug};
pub use seeded_pool::{PoolBug, SeededPool};
pub use tenants_storm::tenants_storm;
