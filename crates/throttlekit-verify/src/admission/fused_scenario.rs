//! Random traces of calls that are decided by a rate and a cost limit.

use std::time::Duration;

use throttlekit::Limit;
use throttlekit::rate::{Cadence, LimitError, Timestamp};
use throttlekit_core::rate::Weekday;
use throttlekit_core::rate::shared::ScriptEncoding;

use throttlekit_conformance::scenario::roll_wait;
use throttlekit_conformance::stores::Used;
use throttlekit_conformance::{Dice, Spec};

const MICRO: u64 = 1_000;
const YEAR: u64 = 365 * 86_400_000_000;
const YEAR_2023: u64 = 1_700_000_000_000_000;
/// The keys of the calls.
pub(super) const KEYS: [&str; 3] = ["ann", "bob", "{c}:/%00 "];

/// The rules; every two make a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Rules {
    Gcra,
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    CalendarWindow,
    TokenBudget,
    SlidingWindow,
    SlidingLog,
}

/// All rules with their names.
pub const RULES: [(&str, Rules); 8] = [
    ("gcra", Rules::Gcra),
    ("token-bucket", Rules::TokenBucket),
    ("leaky-bucket", Rules::LeakyBucket),
    ("fixed-window", Rules::FixedWindow),
    ("calendar-window", Rules::CalendarWindow),
    ("token-budget", Rules::TokenBudget),
    ("sliding-window", Rules::SlidingWindow),
    ("sliding-log", Rules::SlidingLog),
];

/// The number of pairs. The rule of the rate comes first.
pub const PAIRS: u64 = (RULES.len() * RULES.len()) as u64;

/// One step of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusedOperation {
    /// A call.
    Ask {
        /// The index of the key.
        key: usize,
        /// The cost.
        cost: u64,
    },
    /// An admitted call ends. The index wraps around the open calls. `None` drops the permit.
    Settle {
        /// The index of the permit.
        permit: usize,
        /// The actual use.
        used: Option<Used>,
    },
    /// Time passes.
    Wait(Duration),
    /// Time passes until the last denial's retry-after, plus this many microseconds.
    Retry(i64),
    /// The clock is set back.
    StepBack(Duration),
}

/// Two limits and a trace. The seed selects the pair: seeds that differ by a multiple of the number of pairs
/// have the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FusedScenario {
    /// The seed, for replay.
    pub seed: u64,
    /// The limit of the rate axis.
    pub rate: Spec,
    /// The limit of the cost axis.
    pub cost: Spec,
    /// The initial reading of the clock.
    pub start: Timestamp,
    /// If true, the clock never goes behind an instant at which the cost denied what the rate had allowed.
    pub keeps_to_denials: bool,
    /// The steps, in order.
    pub operations: Vec<FusedOperation>,
}

impl FusedScenario {
    /// Draws the scenario of this seed.
    pub fn roll(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let pair = (seed % PAIRS) as usize;
        let (calls, tokens) = (dice.between(1, 5), dice.between(1, 40));
        let rate = roll_spec(&mut dice, RULES[pair / RULES.len()].1, calls);
        let cost = roll_spec(&mut dice, RULES[pair % RULES.len()].1, tokens);
        let start = Timestamp::from_micros(YEAR_2023 + dice.below(3 * YEAR));
        let count = dice.between(4, 12);
        let operations = (0..count).map(|_| roll_operation(&mut dice, [&rate, &cost])).collect();
        Self { seed, rate, cost, start, keeps_to_denials: dice.once_in(2), operations }
    }

    pub(super) fn limits(&self) -> Result<[Limit; 2], LimitError> {
        Ok([self.rate.limit()?, self.cost.limit()?])
    }

    /// Returns the same scenario with one operation removed, each in turn.
    pub(super) fn smaller(&self) -> impl Iterator<Item = Self> + '_ {
        (0..self.operations.len()).map(|i| {
            let mut scenario = self.clone();
            scenario.operations.remove(i);
            scenario
        })
    }
}

/// Draws a limit of this rule with `units` that a store can keep.
pub(super) fn roll_spec(dice: &mut Dice, rule: Rules, units: u64) -> Spec {
    loop {
        let spec = roll_any(dice, rule, units);
        if spec.limit().is_ok_and(|limit| ScriptEncoding::of(&limit).is_ok()) {
            return spec;
        }
    }
}

fn roll_any(dice: &mut Dice, rule: Rules, units: u64) -> Spec {
    let period = Duration::from_millis(dice.pick(&[10, 333, 1_000, 1_000, 7_000, 60_000]));
    let pace = dice.pick(&[1, 2, 3, 7, 10]);
    let length = period;
    match rule {
        Rules::Gcra => Spec::Gcra { units: pace, period, burst: units },
        Rules::TokenBucket => Spec::TokenBucket { capacity: units, units: pace, period },
        Rules::LeakyBucket => {
            Spec::LeakyBucket { units: pace, period, max_wait: period / pace as u32 * (units - 1) as u32 }
        }
        Rules::FixedWindow => Spec::Window { limit: units, cadence: roll_even(dice, period) },
        Rules::CalendarWindow => Spec::Window { limit: units, cadence: roll_calendar(dice) },
        Rules::TokenBudget => {
            let cadence = if dice.once_in(4) { roll_calendar(dice) } else { roll_even(dice, period) };
            Spec::Budget { limit: units, cadence }
        }
        Rules::SlidingWindow => {
            Spec::SlidingWindow { limit: units, length, buckets: dice.pick(&[1, 2, 3, 10]), exact: true }
        }
        Rules::SlidingLog => Spec::SlidingLog { limit: units, length },
    }
}

fn roll_even(dice: &mut Dice, length: Duration) -> Cadence {
    let anchor = Timestamp::from_micros(dice.pick(&[0, 1, 333_333]));
    Cadence::Every { length, anchor }
}

fn roll_calendar(dice: &mut Dice) -> Cadence {
    let utc_offset_minutes = dice.pick(&[0, 60, -300, 345]);
    match dice.below(3) {
        0 => Cadence::Day { utc_offset_minutes },
        1 => Cadence::Week { starts_on: dice.pick(&[Weekday::Monday, Weekday::Sunday]), utc_offset_minutes },
        _ => Cadence::Month { utc_offset_minutes },
    }
}

fn roll_operation(dice: &mut Dice, specs: [&Spec; 2]) -> FusedOperation {
    match dice.below(20) {
        // Most for one key, so that limits are reached.
        0..=10 => {
            FusedOperation::Ask { key: dice.pick(&[0, 0, 0, 0, 1, 2]), cost: roll_cost(dice, specs[1]) }
        }
        11..=14 => {
            let more = dice.between(2, 20);
            let used =
                [Used::Nothing, Used::Half, Used::OneLess, Used::AsCharged, Used::OneMore, Used::More(more)];
            let used = if dice.once_in(6) { None } else { Some(dice.pick(&used)) };
            FusedOperation::Settle { permit: dice.below(8) as usize, used }
        }
        15 => FusedOperation::Retry(dice.below(3) as i64 - 1),
        16 => FusedOperation::StepBack(roll_micros(dice, specs)),
        _ => FusedOperation::Wait(roll_micros(dice, specs)),
    }
}

fn roll_cost(dice: &mut Dice, spec: &Spec) -> u64 {
    let limit = spec.limit().map_or(1, |limit| limit.units());
    let part = dice.between(1, limit.max(1));
    dice.pick(&[1, 2, 3, 0, part, part, part, part, limit, limit + 1])
}

/// Draws a duration to the microsecond around an edge of either limit.
pub(super) fn roll_micros(dice: &mut Dice, specs: [&Spec; 2]) -> Duration {
    let spec = dice.pick(&specs);
    let nanos = u64::try_from(roll_wait(dice, spec).as_nanos()).unwrap_or(u64::MAX);
    Duration::from_micros((nanos.div_ceil(MICRO) + dice.below(3)).saturating_sub(1))
}
