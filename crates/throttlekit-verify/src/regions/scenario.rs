//! Random scenarios of regions and tenants.

use throttlekit_core::fair::{Weight, weighted_max_min};

use throttlekit_conformance::Dice;

/// Regions, tenants and a budget.
#[derive(Clone, Debug)]
pub struct RegionScenario {
    /// Replays it.
    pub seed: u64,
    /// The budget of a window.
    pub limit: u64,
    /// Batch size of each region.
    pub quantum: u64,
    /// Maximum cost of one request.
    pub cost_max: u64,
    /// Set if every tenant is active from the start, not only from its first request on.
    pub all_known: bool,
    /// Number of regions.
    pub regions: usize,
    /// The weight of each tenant in each region; zero if it never makes a request there.
    pub weights: Vec<Vec<u64>>,
    /// The demand of each tenant in each region. For backlogged tenants that is more than the budget.
    pub demands: Vec<Vec<u64>>,
}

impl RegionScenario {
    /// Generates a scenario in which every tenant demands more than the budget.
    pub fn backlogged(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let all_known = dice.once_in(2);
        let (regions, tenants) = (dice.between(2, 6) as usize, dice.between(1, 8) as usize);
        let limit = dice.between(1, 40) * dice.pick(&[1, 10, 50]);
        let quantum = dice.between(1, 50);
        let cost_max = if dice.once_in(2) { 1 } else { dice.between(1, quantum) };
        let weight_max = dice.pick(&[1, 4, 100, 1_000]);
        let tenant = |_| roll_tenant(&mut dice, regions, weight_max);
        let weights: Vec<Vec<u64>> = (0..tenants).map(tenant).collect();
        let demands = weights.iter().map(|of| of.iter().map(|&w| if w > 0 { u64::MAX } else { 0 }).collect());
        Self { seed, limit, quantum, cost_max, all_known, regions, demands: demands.collect(), weights }
    }

    /// The same, except that some tenants want less than their share. Nothing is guaranteed about what they leave.
    pub fn mixed(seed: u64) -> Self {
        let mut scenario = Self::backlogged(seed);
        let mut dice = Dice::new(!seed);
        for demand in scenario.demands.iter_mut().flatten().filter(|demand| **demand > 0) {
            if dice.once_in(2) {
                *demand = dice.below(scenario.limit + 1);
            }
        }
        scenario
    }

    /// Returns each tenant's share under one arbiter with all demands.
    pub fn ideal(&self) -> Vec<u64> {
        let sum = |of: &Vec<u64>| of.iter().fold(0_u64, |sum, &n| sum.saturating_add(n));
        let demands: Vec<u64> = self.demands.iter().map(sum).collect();
        let weights: Vec<Weight> = self.weights.iter().map(|of| weight(sum(of))).collect();
        weighted_max_min(&demands, &weights, self.limit)
    }

    /// Returns the number of regions of a tenant.
    pub fn span(&self, tenant: usize) -> u64 {
        self.weights[tenant].iter().filter(|weight| **weight > 0).count() as u64
    }

    /// Returns the largest step in which units are granted.
    pub fn step(&self) -> u64 {
        self.quantum.max(self.cost_max)
    }

    /// Returns each tenant with each of its regions.
    pub(super) fn pairs(&self) -> Vec<(usize, usize)> {
        let all =
            (0..self.weights.len()).flat_map(|tenant| (0..self.regions).map(move |region| (tenant, region)));
        all.filter(|&(tenant, region)| self.weights[tenant][region] > 0).collect()
    }
}

/// Generates a tenant that is in one region, or in several with a part of its weight in each.
fn roll_tenant(dice: &mut Dice, regions: usize, weight_max: u64) -> Vec<u64> {
    let mut weights = vec![0; regions];
    let span = if dice.once_in(2) { 1 } else { dice.between(1, regions as u64) };
    for _ in 0..span {
        weights[dice.below(regions as u64) as usize] = dice.between(1, weight_max);
    }
    weights
}

pub(super) fn weight(number: u64) -> Weight {
    Weight::new(number).expect("in range")
}
