//! `fair-regions`: one budget, several regions, and what each tenant gets of it.
//!
//! * [`examine_pool`] plays timelines to a [`RegionPool`](throttlekit::store::RegionPool) and to the pure
//!   [`Pool`](throttlekit_core::fair::pool::Pool), and compares every grant: a pool on an engine is the one in process.

mod planted_pool;
mod pool_storm;
mod pool_world;
mod same_pool;

pub use planted_pool::{POOL_BUGS, PlantedPool, PoolBug};
pub use pool_storm::{PoolStorm, pool_storm};
pub use pool_world::{PoolOperation, PoolWorld};
pub use same_pool::{PoolReport, examine_pool, find_pool_bug};
