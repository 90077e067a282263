//! A pool that several regions fetch from, on a store, is the one in process.
//!
//! [`examine_pool`] runs traces against a [`RegionStore`](throttlekit::store::RegionStore) and against the pure
//! [`Pool`](throttlekit_core::fair::pool::Pool), and compares every grant.

mod pool_contention;
mod pool_scenario;
mod same_pool;
mod seeded_pool;
mod tenant_contention;

pub use pool_contention::{PoolContention, pool_contention};
pub use pool_scenario::{PoolOperation, PoolScenario};
pub use same_pool::{PoolReport, examine_pool, find_pool_bug};
pub use seeded_pool::{PoolBug, SeededPool};
pub use tenant_contention::tenant_contention;
