//! The final share of each tenant, compared with that under one arbiter.

use std::time::Duration;

use throttlekit::Limit;
use throttlekit_core::fair::Weight;

use super::scenario::{RegionScenario, weight};
use super::sim::{Faults, HOLD, RegionBug, Sim};
use throttlekit_conformance::invariants::Violation;

const WINDOW: Duration = Duration::from_secs(86_400 * 365);
/// Number of denied rounds of all tenants until nothing is assumed to be left: to learn the share, to fetch it, to
/// spend it, and once more.
const IN_VAIN: u64 = 4;

/// The outcome of one scenario.
#[derive(Clone, Debug)]
pub struct FairnessOutcome {
    /// Units of each tenant, in all regions.
    pub got: Vec<u64>,
    /// Its ideal share.
    pub ideal: Vec<u64>,
    /// Maximum deviation from that; what was spent before every tenant had made a request comes on top.
    pub bound: Vec<u64>,
    /// The budget.
    pub limit: u64,
    /// Maximum number of units left over: less than one request of each tenant in each region.
    pub left_max: u64,
}

impl FairnessOutcome {
    /// Runs the scenario until no tenant is granted any more.
    pub fn of(scenario: &RegionScenario, bug: Option<RegionBug>) -> Self {
        let limit = Limit::fixed_window(scenario.limit, WINDOW).expect("in range");
        let faults = Faults { delay_max: Duration::from_millis(1), ..Faults::default() };
        let tenants = scenario.weights.len();
        let mut sim =
            Sim::new(scenario.seed, scenario.regions, tenants, limit, scenario.quantum, faults, bug);
        let mut pairs = scenario.pairs();
        for region in (0..scenario.regions).filter(|_| scenario.all_known) {
            let here = pairs.iter().filter(|pair| pair.1 == region);
            sim.join(region, here.map(|&(tenant, _)| (tenant, own_weight(scenario, bug, tenant, region))));
        }
        let (mut in_vain, mut early) = (0, None);
        while in_vain < IN_VAIN {
            let before: u64 = sim.admitted.values().sum();
            shuffle(&mut sim, &mut pairs);
            pairs.iter().for_each(|&(tenant, region)| turn(&mut sim, scenario, bug, tenant, region));
            while sim.deliver().is_some() {}
            sim.now = sim.now + HOLD;
            let after = sim.admitted.values().sum::<u64>();
            in_vain = if after > before { 0 } else { in_vain + 1 };
            early.get_or_insert(if scenario.all_known { 0 } else { after });
        }
        let got = sim.got.iter().map(|of| of.iter().sum()).collect();
        let early = early.unwrap_or(0);
        let bound =
            (0..tenants).map(|tenant| scenario.span(tenant) * (2 * scenario.step() + 1) + early).collect();
        let left_max = pairs.len() as u64 * (scenario.cost_max - 1);
        Self { got, ideal: scenario.ideal(), bound, limit: scenario.limit, left_max }
    }

    /// Returns the largest deviation of a tenant from the ideal, as a fraction of its bound.
    pub fn worst(&self) -> f64 {
        let each = self.got.iter().zip(&self.ideal).zip(&self.bound);
        each.map(|((got, ideal), bound)| got.abs_diff(*ideal) as f64 / *bound as f64).fold(0.0, f64::max)
    }

    /// Returns the fraction of units that are not where they would ideally be.
    pub fn misplaced(&self) -> f64 {
        let short: u64 =
            self.got.iter().zip(&self.ideal).map(|(got, ideal)| ideal.saturating_sub(*got)).sum();
        short as f64 / self.limit as f64
    }
}

/// Makes a request of a tenant in a region, unless it waits there. Some replies arrive before the next request, some
/// after.
fn turn(sim: &mut Sim, scenario: &RegionScenario, bug: Option<RegionBug>, tenant: usize, region: usize) {
    let left = scenario.demands[tenant][region] - sim.got[tenant][region];
    let cost = sim.dice.between(1, scenario.cost_max).min(left);
    if cost > 0 && !sim.waits(tenant, region) {
        sim.ask(tenant, region, own_weight(scenario, bug, tenant, region), cost);
        while !sim.dice.once_in(3) && sim.deliver().is_some() {}
    }
}

fn own_weight(scenario: &RegionScenario, bug: Option<RegionBug>, tenant: usize, region: usize) -> Weight {
    let of = &scenario.weights[tenant];
    weight(if bug == Some(RegionBug::FullWeightInEveryRegion) { of.iter().sum() } else { of[region] })
}

fn shuffle(sim: &mut Sim, pairs: &mut [(usize, usize)]) {
    for i in (1..pairs.len()).rev() {
        pairs.swap(i, sim.dice.below(i as u64 + 1) as usize);
    }
}

/// Checks the guarantee `fair-regions`, fairness, in the scenario of this seed, where every tenant is backlogged.
pub fn check_fairness(seed: u64, bug: Option<RegionBug>) -> Result<f64, Violation> {
    let scenario = RegionScenario::backlogged(seed);
    let outcome = FairnessOutcome::of(&scenario, bug);
    let sum: u64 = outcome.got.iter().sum();
    let fails =
        |what: &str| Err(Violation { seed, counterexample: format!("{what}\n{outcome:?}\n{scenario:?}") });
    if sum > scenario.limit {
        return fails("more than the limit was admitted");
    }
    if outcome.worst() > 1.0 {
        return fails("a tenant is too far from its ideal");
    }
    if sum + outcome.left_max < scenario.limit {
        return fails("units are left although every tenant requests more");
    }
    Ok(outcome.worst())
}
