//! Random scenarios of tenants that share one budget.

use std::fmt;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::fair::GiveBack;

use throttlekit_conformance::Dice;

/// The error of a wrong clock, in windows.
const WRONG_BY_MAX: u64 = 4;
/// The maximum backward step of a wandering clock, in windows: beyond those that are remembered.
const WANDERS_BACK_MAX: u64 = 16;

/// The length of the windows of every scenario.
pub const WINDOW: Duration = Duration::from_secs(1_000);
const TENANTS_MAX: u64 = 6;
const COST_MAX: u64 = 50;
const WEIGHT_MAX: u64 = 1_000;
const OPERATIONS_MAX: u64 = 24;
const PARTS: u64 = 8;

/// A budget, its tenants, and the operations.
#[derive(Clone, Debug)]
pub struct FairScenario {
    /// Units in a window.
    pub limit: u64,
    /// The maximum number of separate tenants.
    pub places: usize,
    /// The return of quiet tenants' shares, if enabled.
    pub give_back: Option<GiveBack>,
    /// The initial weights of tenants.
    pub weights: Vec<u64>,
    /// The start time.
    pub start: Timestamp,
    /// The operations, in order.
    pub operations: Vec<Operation>,
}

/// One operation.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A tenant sends a request.
    Ask {
        /// The tenant.
        tenant: usize,
        /// The cost.
        cost: u64,
    },
    /// Time passes.
    Wait(Duration),
    /// The clock is set back.
    StepBack(Duration),
    /// A tenant has another weight from its next request on.
    Reweigh {
        /// The tenant.
        tenant: usize,
        /// Its new weight.
        weight: u64,
    },
    /// The limit changes.
    SetLimit(u64),
    /// A tenant is forgotten, and its use returned.
    Reset {
        /// The tenant.
        tenant: usize,
    },
    /// Part of an open charge is refunded, if there is one.
    Refund {
        /// The index of the open charge, wrapping around.
        ask: usize,
        /// The maximum number of units.
        units: u64,
    },
    /// All active tenants, except the silent ones, repeat their request in turn until none of them gets
    /// anything.
    Exhaust {
        /// The cost of each tenant's request.
        costs: Vec<u64>,
        /// True for tenants that do not request.
        silent: Vec<bool>,
    },
}

impl FairScenario {
    /// Draws the scenario of a seed.
    pub fn roll(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let tenants = 1 + dice.below(TENANTS_MAX);
        let cost_max = if dice.below(4) == 0 { 1 } else { 1 + dice.below(COST_MAX) };
        let weight_max = [1, 8, WEIGHT_MAX][dice.below(3) as usize];
        let limit = roll_limit(&mut dice, cost_max);
        let places = if dice.below(3) == 0 { 1 + dice.below(tenants) } else { tenants };
        let give_back = (dice.below(2) == 0).then(|| GiveBack {
            quiet_after: Duration::from_secs(dice.below(50)),
            over: Duration::from_nanos(dice.below(80) * 1_000_000_000 + dice.below(8)),
        });
        let weights = (0..tenants).map(|_| 1 + dice.below(weight_max)).collect();
        let wanders = dice.once_in(16);
        let mut roller = Roller { dice, tenants, cost_max, weight_max, give_back, asked: false, wanders };
        let count = 1 + roller.dice.below(if wanders { 4 * OPERATIONS_MAX } else { OPERATIONS_MAX });
        let mut operations: Vec<Operation> = (0..count).map(|_| roller.operation()).collect();
        operations.push(roller.exhaust());
        let start = Timestamp::from_nanos(1_000_000 * WINDOW.as_nanos() as u64);
        Self { limit, places: places as usize, give_back, weights, start, operations }
    }

    /// Returns a shorter scenario that still fails.
    pub fn shrink(&self, fails: impl Fn(&Self) -> bool) -> Self {
        let mut scenario = self.clone();
        let mut at = 0;
        while at < scenario.operations.len() {
            let mut shorter = scenario.clone();
            shorter.operations.remove(at);
            if fails(&shorter) {
                scenario = shorter;
            } else {
                at += 1;
            }
        }
        scenario
    }
}

impl fmt::Display for FairScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "limit {}, places {}, weights {:?}, {:?}",
            self.limit, self.places, self.weights, self.give_back
        )?;
        self.operations.iter().try_for_each(|operation| writeln!(f, "  {operation:?}"))
    }
}

fn roll_limit(dice: &mut Dice, cost_max: u64) -> u64 {
    match dice.below(4) {
        0 => 1 + dice.below(12),
        1 | 2 => 1 + dice.below(6 * cost_max + 20),
        _ => 1 + dice.below(10 * cost_max + 60),
    }
}

struct Roller {
    dice: Dice,
    tenants: u64,
    cost_max: u64,
    weight_max: u64,
    give_back: Option<GiveBack>,
    asked: bool,
    /// True if the clock is unreliable: it moves through many windows, back and forth.
    wanders: bool,
}

impl Roller {
    fn operation(&mut self) -> Operation {
        // Tenants join first, so that scenarios are about sharing.
        if !self.asked && self.dice.below(2) == 0 {
            return self.ask();
        }
        self.asked = true;
        if self.wanders && self.dice.once_in(2) {
            return match self.dice.below(4) {
                0 => Operation::StepBack(WINDOW * self.dice.between(1, WANDERS_BACK_MAX) as u32),
                _ => Operation::Wait(WINDOW),
            };
        }
        match self.dice.below(29) {
            0 => {
                let (tenant, weight) = (self.tenant(), 1 + self.dice.below(self.weight_max));
                Operation::Reweigh { tenant, weight }
            }
            1 => Operation::SetLimit(roll_limit(&mut self.dice, self.cost_max)),
            2 => Operation::Reset { tenant: self.tenant() },
            3..=6 => Operation::Wait(self.wait()),
            7 => Operation::StepBack(self.wait()),
            27 => Operation::Wait(self.windows()),
            28 => Operation::StepBack(self.windows()),
            8 => self.exhaust(),
            9..=11 => {
                let (ask, units) =
                    (self.dice.below(OPERATIONS_MAX) as usize, 1 + self.dice.below(self.cost_max));
                Operation::Refund { ask, units }
            }
            _ => self.ask(),
        }
    }

    fn ask(&mut self) -> Operation {
        let cost = if self.dice.below(16) == 0 { 0 } else { 1 + self.dice.below(self.cost_max) };
        Operation::Ask { tenant: self.tenant(), cost }
    }

    fn exhaust(&mut self) -> Operation {
        let costs = (0..self.tenants).map(|_| 1 + self.dice.below(self.cost_max)).collect();
        let quiet = self.dice.below(3) == 0;
        let silent = (0..self.tenants).map(|_| quiet && self.dice.below(3) == 0).collect();
        Operation::Exhaust { costs, silent }
    }

    fn tenant(&mut self) -> usize {
        self.dice.below(self.tenants) as usize
    }

    /// Draws the error of a wrong clock: some whole windows.
    fn windows(&mut self) -> Duration {
        WINDOW * self.dice.between(1, WRONG_BY_MAX) as u32
    }

    /// Draws some seconds, a time to the nanosecond around a tenant's return of a part, or a time in another
    /// window.
    fn wait(&mut self) -> Duration {
        let window = WINDOW.as_nanos() as u64;
        match (self.dice.below(8), self.give_back) {
            (0, _) => Duration::from_nanos(window - 1 + self.dice.below(3)),
            (1..=5, Some(by)) => {
                let part = (by.over.as_nanos() as u64 * self.dice.below(PARTS + 1)).div_ceil(PARTS);
                let near = by.quiet_after.as_nanos() as u64 + part + self.dice.below(3);
                Duration::from_nanos(near.saturating_sub(1))
            }
            _ => Duration::from_secs(self.dice.below(60)),
        }
    }
}
