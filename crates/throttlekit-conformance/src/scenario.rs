//! Random scenarios: a limit, a start time, and a sequence of operations on a few keys.

use std::fmt;
use std::time::Duration;

use throttlekit_core::rate::word::WORDS_END;
use throttlekit_core::rate::{BUDGET_MAX, Cadence, LocalPeriod, UNITS_MAX, Weekday};
use throttlekit_core::{Cost, Timestamp};

use crate::half_years;
use crate::text::{nanos, print_duration};
use crate::{Dice, Spec};

/// One operation. Stores, invariants and fuzzers all use this vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes a request.
    Ask {
        /// The key.
        key: u8,
        /// Cost of the request.
        cost: Cost,
    },
    /// Reads the remaining units.
    Peek {
        /// The key.
        key: u8,
    },
    /// Computes a forecast.
    Forecast {
        /// The key.
        key: u8,
        /// Cost of the requests.
        cost: Cost,
    },
    /// Resets a key.
    Reset {
        /// The key.
        key: u8,
    },
    /// Time passes.
    Wait(Duration),
    /// The clock is set back.
    StepBack(Duration),
}

/// A limit and the operations on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Replays this scenario.
    pub seed: u64,
    /// The limit.
    pub spec: Spec,
    /// Start time of the clock.
    pub start: Timestamp,
    /// The operations, in order.
    pub operations: Vec<Operation>,
}

const OPERATIONS_MAX: u64 = 32;
const KEYS: u64 = 3;
const DAY: u64 = 86_400_000_000_000;
const YEAR_2023: u64 = 1_700_000_000_000_000_000;
/// The epoch itself, years around now, and instants at which a double cannot distinguish microseconds.
const STARTS: [u64; 5] = [0, YEAR_2023, 1_709_164_799_999_999_999, 4_000_000_000_123_456_789, 1 << 63];

impl Scenario {
    /// Generates the scenario of a seed: any rule, a clock that may step back.
    pub fn roll(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let spec = roll_spec(&mut dice);
        let start = Timestamp::from_nanos(dice.pick(&STARTS) + dice.any_size(3 * DAY));
        let count = dice.between(1, OPERATIONS_MAX);
        let operations = (0..count).map(|_| roll_operation(&mut dice, &spec)).collect();
        Self { seed, spec, start, operations }
    }

    /// Returns a generator for whatever a check needs beyond the scenario, independent of the one that generated the
    /// scenario.
    pub fn dice(&self) -> Dice {
        Dice::new(!self.seed)
    }

    /// Returns the same scenario with a clock that never steps back.
    pub fn forward(mut self) -> Self {
        self.operations.retain(|operation| !matches!(operation, Operation::StepBack(_)));
        self
    }

    /// Returns each operation with the clock's time.
    pub fn moments(&self) -> impl Iterator<Item = (Timestamp, Operation)> {
        self.operations.iter().scan(self.start, |now, operation| {
            match *operation {
                Operation::Wait(by) => *now = *now + by,
                Operation::StepBack(by) => {
                    *now = Timestamp::from_nanos(now.as_nanos().saturating_sub(nanos(by)));
                }
                _ => {}
            }
            Some((*now, *operation))
        })
    }

    /// Returns only the requests, as those of one key.
    pub fn asks(&self) -> impl Iterator<Item = (Timestamp, Cost)> {
        self.moments().filter_map(|(now, operation)| match operation {
            Operation::Ask { cost, .. } => Some((now, cost)),
            _ => None,
        })
    }

    /// Returns the clock's time when a limiter is built for this scenario: often different from soon after.
    pub fn built_at(&self) -> Timestamp {
        let latest = self.moments().map(|(now, _)| now).max().unwrap_or(self.start);
        if latest >= WORDS_END {
            return self.start;
        }
        let days = |days: u64| Timestamp::from_nanos(self.start.as_nanos() + days * DAY);
        [self.start, Timestamp::EPOCH, days(2), days(2 * 366)][(self.seed % 4) as usize]
    }

    /// Drops operations one by one as long as the scenario fails, which gives a short counterexample.
    pub fn shrink(mut self, fails: impl Fn(&Self) -> bool) -> Self {
        let mut index = self.operations.len();
        while index > 0 {
            index -= 1;
            let mut shorter = self.clone();
            shorter.operations.remove(index);
            if fails(&shorter) {
                self = shorter;
                index = self.operations.len();
            }
        }
        self
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, limit {}, clock at {}", self.seed, self.spec, self.start)?;
        self.operations.iter().try_for_each(|operation| match operation {
            Operation::Wait(by) => writeln!(f, "  wait {}", print_duration(*by)),
            Operation::StepBack(by) => writeln!(f, "  step back {}", print_duration(*by)),
            other => writeln!(f, "  {other:?}"),
        })
    }
}

/// Generates any limit, the awkward ones first: rates that do not divide, buckets that do not divide, odd offsets.
pub fn roll_spec(dice: &mut Dice) -> Spec {
    match dice.below(11) {
        0..=2 => Spec::Gcra { units: roll_units(dice), period: roll_period(dice), burst: roll_limit(dice) },
        3 => Spec::TokenBucket {
            capacity: roll_limit(dice),
            units: roll_units(dice),
            period: roll_period(dice),
        },
        4 => roll_shaper(dice),
        5 | 6 => Spec::Window { limit: roll_limit(dice), cadence: roll_cadence(dice) },
        7 | 8 => roll_sliding_window(dice),
        9 => Spec::Budget { limit: roll_limit(dice).min(BUDGET_MAX), cadence: roll_cadence(dice) },
        _ => Spec::SlidingLog { limit: dice.between(1, 20), length: roll_period(dice) },
    }
}

fn roll_units(dice: &mut Dice) -> u64 {
    let any = dice.any_size(UNITS_MAX).max(1);
    dice.pick(&[1, 2, 3, 7, 10, 60, 100, 1_000_001, 1_000_000_000, any])
}

fn roll_limit(dice: &mut Dice) -> u64 {
    let any = dice.any_size(UNITS_MAX).max(1);
    dice.pick(&[1, 2, 3, 5, 5, 10, 20, any])
}

fn roll_period(dice: &mut Dice) -> Duration {
    let any = dice.any_size(2 * DAY).max(1);
    let ns = [1, 7, 1_000, 1_000_000, 333_333_333, 1_000_000_000, 1_000_000_000, 60_000_000_000, DAY, any];
    Duration::from_nanos(dice.pick(&ns))
}

/// Generates a shaper whose queue holds some units, and a part of one.
fn roll_shaper(dice: &mut Dice) -> Spec {
    let (units, period) = (roll_units(dice).min(1_000_000_000), roll_period(dice));
    let pace = nanos(period) / units;
    let max_wait = Duration::from_nanos(pace * dice.below(10) + dice.below(pace + 1));
    Spec::LeakyBucket { units, period, max_wait }
}

/// In place of an offset: the clocks of a time zone.
const LOCAL: i32 = 345;

fn roll_cadence(dice: &mut Dice) -> Cadence {
    use Weekday::*;
    let utc_offset_minutes = dice.pick(&[0, 0, 60, -300, LOCAL, -840, 840]);
    match dice.below(5) {
        part @ 0..=2 if utc_offset_minutes == LOCAL => {
            let period = match part {
                0 => LocalPeriod::Day,
                1 => LocalPeriod::Week {
                    starts_on: dice.pick(&[Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday]),
                },
                _ => LocalPeriod::Month { starts_on: dice.pick(&[1, 15, 28, 29, 30, 31]) },
            };
            Cadence::Local { period, zone: half_years::zone() }
        }
        0 => Cadence::Day { utc_offset_minutes },
        1 => {
            let starts_on = dice.pick(&[Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday]);
            Cadence::Week { starts_on, utc_offset_minutes }
        }
        2 => Cadence::Month { utc_offset_minutes },
        3 => Cadence::Every { length: roll_period(dice), anchor: Timestamp::EPOCH },
        _ => Cadence::Every {
            length: roll_period(dice),
            anchor: Timestamp::from_nanos(dice.any_size(1 << 62)),
        },
    }
}

fn roll_sliding_window(dice: &mut Dice) -> Spec {
    let length = roll_period(dice);
    let most = nanos(length).min(16) as u32;
    let buckets = dice.pick(&[1, 2, 3, 7, 10, 16]).min(most);
    Spec::SlidingWindow { limit: roll_limit(dice), length, buckets, exact: true }
}

fn roll_operation(dice: &mut Dice, spec: &Spec) -> Operation {
    let key = dice.below(KEYS) as u8;
    match dice.below(20) {
        0..=11 => Operation::Ask { key, cost: roll_cost(dice, spec) },
        12 => Operation::Peek { key },
        13 => Operation::Forecast { key, cost: roll_cost(dice, spec) },
        14 if dice.once_in(3) => Operation::Reset { key },
        15 => Operation::StepBack(roll_wait(dice, spec)),
        _ => Operation::Wait(roll_wait(dice, spec)),
    }
}

/// Generates a cost: mostly one; sometimes nothing, everything, too much, or anything between.
pub fn roll_cost(dice: &mut Dice, spec: &Spec) -> Cost {
    let limit = spec.limit().map_or(1, |limit| limit.units());
    let part = dice.between(1, limit);
    dice.pick(&[1, 1, 1, 2, 3, 0, limit, limit, limit + 1, part, part])
}

/// Generates a wait, mostly at the edges: whole paces and periods, and a nanosecond to either side.
pub fn roll_wait(dice: &mut Dice, spec: &Spec) -> Duration {
    let (pace, period) = rhythm(spec);
    let paces = pace.saturating_mul(dice.between(1, 5)).min(period);
    let part = dice.below(period) + 1;
    let wait = dice.pick(&[0, 1, pace, paces, paces, period, period, part, part, period + part]);
    Duration::from_nanos((wait + dice.below(3)).saturating_sub(1))
}

/// Returns roughly how long one unit takes and how long all of them; at most two months, so that scenarios end in time.
pub(crate) fn rhythm(spec: &Spec) -> (u64, u64) {
    let Ok(limit) = spec.limit() else { return (1, 1) };
    let period = nanos(limit.period()).clamp(1, 62 * DAY);
    let pace = match *spec {
        Spec::Gcra { units, period, .. }
        | Spec::TokenBucket { units, period, .. }
        | Spec::LeakyBucket { units, period, .. } => nanos(period).div_ceil(units),
        Spec::SlidingWindow { buckets, .. } => period.div_ceil(u64::from(buckets)),
        Spec::Window { .. } | Spec::Budget { .. } | Spec::SlidingLog { .. } => period,
    };
    (pace, period)
}
