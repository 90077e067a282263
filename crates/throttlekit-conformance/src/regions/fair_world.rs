//! Random worlds of regions and tenants.

use throttlekit_core::fair::{Weight, weighted_max_min};

use crate::Dice;

/// Regions, tenants and a budget.
#[derive(Clone, Debug)]
pub struct FairWorld {
    /// Replays it.
    pub seed: u64,
    /// The budget of a window.
    pub limit: u64,
    /// In what each region fetches.
    pub quantum: u64,
    /// The most that one ask costs.
    pub cost_max: u64,
    /// Whether everyone is active from the beginning, or only from its first ask on.
    pub all_known: bool,
    /// How many regions there are.
    pub regions: usize,
    /// The weight of each tenant in each region; zero where it never asks.
    pub weights: Vec<Vec<u64>>,
    /// How much each tenant asks for in each region. Where tenants are backlogged that is more than there is.
    pub demands: Vec<Vec<u64>>,
}

impl FairWorld {
    /// A world in which everyone asks for more than there is.
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

    /// The same, but that some tenants want less than they are due. Nothing is promised of what they leave.
    pub fn mixed(seed: u64) -> Self {
        let mut world = Self::backlogged(seed);
        let mut dice = Dice::new(!seed);
        for demand in world.demands.iter_mut().flatten().filter(|demand| **demand > 0) {
            if dice.once_in(2) {
                *demand = dice.below(world.limit + 1);
            }
        }
        world
    }

    /// What each tenant gets where one arbiter knows all demands at once.
    pub fn ideal(&self) -> Vec<u64> {
        let sum = |of: &Vec<u64>| of.iter().fold(0_u64, |sum, &n| sum.saturating_add(n));
        let demands: Vec<u64> = self.demands.iter().map(sum).collect();
        let weights: Vec<Weight> = self.weights.iter().map(|of| weight(sum(of))).collect();
        weighted_max_min(&demands, &weights, self.limit)
    }

    /// In how many regions a tenant asks.
    pub fn span(&self, tenant: usize) -> u64 {
        self.weights[tenant].iter().filter(|weight| **weight > 0).count() as u64
    }

    /// The largest step in which units are handed on.
    pub fn step(&self) -> u64 {
        self.quantum.max(self.cost_max)
    }

    /// Each tenant with each region in which it asks.
    pub(super) fn pairs(&self) -> Vec<(usize, usize)> {
        let all =
            (0..self.weights.len()).flat_map(|tenant| (0..self.regions).map(move |region| (tenant, region)));
        all.filter(|&(tenant, region)| self.weights[tenant][region] > 0).collect()
    }
}

/// A tenant that is in one region, or in several with a part of its weight in each.
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
