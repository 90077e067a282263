//! `fair-regions`: one budget, several regions, and the share of each tenant.
//!
//! * [`check_safety`] lets regions fetch from a pool over a network that loses, delays and repeats messages, with
//!   clocks that drift: no window admits more than the limit.
//! * [`check_fairness`] lets every tenant demand more than the budget, and compares its share with that under one
//!   arbiter.

mod fairness;
mod safety;
mod scenario;
mod sim;

pub use fairness::{FairnessOutcome, check_fairness};
pub use safety::check_safety;
pub use scenario::RegionScenario;
pub use sim::{Promise, RegionBug};

/// Returns the number of scenarios until the check of the violated guarantee finds this bug, if `scenarios_max` are
/// enough.
pub fn find_region_bug(bug: RegionBug, scenarios_max: u64) -> Option<u64> {
    let found = |seed: &u64| match bug.breaks() {
        Promise::Safe => check_safety(*seed, Some(bug)).is_err(),
        Promise::Fair => check_fairness(*seed, Some(bug)).is_err(),
    };
    (0..scenarios_max).find(found).map(|seed| seed + 1)
}
