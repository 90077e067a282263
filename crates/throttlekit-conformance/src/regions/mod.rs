//! `fair-regions`: one budget, several regions, and the share of each tenant.
//!
//! * [`examine_pool`] runs traces against a [`RegionStore`](throttlekit::store::RegionStore) and against the pure
//!   [`Pool`](throttlekit_core::fair::pool::Pool), and compares every grant: a pool on an engine is the one in process.
//! * [`check_safety`] lets regions fetch from a pool over a network that loses, delays and repeats messages, with
//!   clocks that drift: no window admits more than the limit.
//! * [`check_fairness`] lets every tenant demand more than the budget, and compares its share with that under one
//!   arbiter.

mod fair_world;
mod fairness;
mod pool_storm;
mod pool_world;
mod safety;
mod same_pool;
mod seeded_pool;
mod sim;
mod tenants_storm;

pub use fair_world::FairWorld;
pub use fairness::{FairnessOutcome, check_fairness};
pub use pool_storm::{PoolContention, pool_storm};
pub use pool_world::{PoolOperation, PoolWorld};
pub use safety::check_safety;
pub use same_pool::{PoolReport, examine_pool, find_pool_bug};
pub use seeded_pool::{PoolBug, SeededPool};
pub use sim::{Promise, RegionBug};
pub use tenants_storm::tenants_storm;

/// Returns the number of scenarios until the check of the violated guarantee finds this bug, if `worlds_max` are
/// enough.
pub fn find_region_bug(bug: RegionBug, worlds_max: u64) -> Option<u64> {
    let found = |seed: &u64| match bug.breaks() {
        Promise::Safe => check_safety(*seed, Some(bug)).is_err(),
        Promise::Fair => check_fairness(*seed, Some(bug)).is_err(),
    };
    (0..worlds_max).find(found).map(|seed| seed + 1)
}
