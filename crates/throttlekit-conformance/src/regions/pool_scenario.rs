//! Random requests of regions over time.

use std::time::Duration;

use throttlekit::Limit;
use throttlekit::rate::{Cadence, LocalPeriod, Timestamp};
use throttlekit_core::fair::{WEIGHT_MAX, Weight};
use throttlekit_core::rate::{BUDGET_MAX, UNITS_MAX};

use crate::Dice;
use crate::half_years;
use crate::runner::without_each;

const OPERATIONS_MAX: u64 = 60;
/// Names that need escaping.
pub(super) const NAMES: [&str; 9] = ["us", "", "eu", "ap south", "a/b", "é", "%20", "#0", "{x}"];

/// A pool and the operations on it.
#[derive(Clone, Debug)]
pub struct PoolScenario {
    /// Replays it.
    pub seed: u64,
    /// The limits that share the pool's key: the second replaces the first in some scenarios.
    pub limits: [Limit; 2],
    /// Start time.
    pub start: Timestamp,
    /// The operations, in order.
    pub operations: Vec<PoolOperation>,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolOperation {
    /// Time passes.
    Advance(Duration),
    /// The clock is set back.
    StepBack(Duration),
    /// The limit is changed.
    Swap,
    /// A region requests units.
    Ask {
        /// The region.
        region: &'static str,
        /// Its weight.
        weight: Weight,
        /// Number of units.
        wants: u64,
    },
}

impl PoolScenario {
    /// Generates the scenario of this seed.
    pub fn roll(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let units = if dice.once_in(3) { dice.any_size(UNITS_MAX).max(1) } else { dice.between(1, 300) };
        let limit = roll_limit(&mut dice, units);
        let fewer = dice.between(1, 300);
        let other = roll_limit(&mut dice, fewer);
        let names = dice.between(1, NAMES.len() as u64) as usize;
        let heavy = dice.once_in(3);
        let length = limit.period();
        let count = dice.between(1, OPERATIONS_MAX);
        let operations = (0..count).map(|_| roll_operation(&mut dice, names, heavy, units, length)).collect();
        // Microseconds, as stores count time.
        let start = Timestamp::from_micros(1_700_000_000_000_000 + dice.below(1 << 45));
        Self { seed, limits: [limit, other], start, operations }
    }

    /// Returns the same with one operation less.
    pub(super) fn smaller(&self) -> impl Iterator<Item = Self> + '_ {
        without_each(&self.operations).map(|operations| Self { operations, ..self.clone() })
    }
}

fn roll_limit(dice: &mut Dice, units: u64) -> Limit {
    let seconds = Duration::from_secs(dice.pick(&[1, 7, 60, 86_400]));
    let limit = match dice.below(5) {
        4 => Limit::token_budget(units.min(BUDGET_MAX), seconds),
        0 => Limit::quota(
            units,
            match dice.pick(&[-300, 0, 330]) {
                330 => {
                    Cadence::Local { period: LocalPeriod::Month { starts_on: 1 }, zone: half_years::zone() }
                }
                utc_offset_minutes => Cadence::Month { utc_offset_minutes },
            },
        ),
        1 => {
            let anchor = Timestamp::from_millis(dice.below(100_000));
            Limit::quota(units, Cadence::Every { length: seconds, anchor })
        }
        _ => Limit::fixed_window(units, seconds),
    };
    limit.expect("units and lengths are in range")
}

fn roll_operation(dice: &mut Dice, names: usize, heavy: bool, units: u64, length: Duration) -> PoolOperation {
    let part = |dice: &mut Dice, of: u64| length.mul_f64(dice.below(of) as f64 / 16.0);
    // Whole microseconds, as the clock of a store has.
    let whole = |time: Duration| Duration::from_micros(time.as_micros() as u64);
    match dice.below(24) {
        0 => PoolOperation::Advance(whole(part(dice, 64))),
        1 => PoolOperation::Advance(whole(part(dice, 8))),
        2 => PoolOperation::StepBack(whole(part(dice, 32))),
        3 if dice.once_in(4) => PoolOperation::Swap,
        _ => {
            let weight = if heavy { dice.any_size(WEIGHT_MAX) } else { dice.between(1, 9) };
            PoolOperation::Ask {
                region: NAMES[dice.below(names as u64) as usize],
                weight: Weight::new(weight).unwrap_or(Weight::ONE),
                wants: roll_wants(dice, units),
            }
        }
    }
}

fn roll_wants(dice: &mut Dice, units: u64) -> u64 {
    match dice.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => dice.any_size(u64::MAX),
        3 | 4 => dice.between(0, units),
        _ => dice.between(1, units / 8 + 1),
    }
}
