//! Random scenarios in which the numbers of a limit change.

use std::fmt;
use std::time::Duration;

use throttlekit_core::lease::Want;
use throttlekit_core::rate::Cadence;
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::{Cost, Timestamp};

use throttlekit_conformance::stores::{
    MICRO, Used, reach, roll_shareable, roll_store_cost, roll_used, roll_wait_micros, roll_want,
};
use throttlekit_conformance::text::{nanos, print_duration};
use throttlekit_conformance::{Dice, Spec};

const STEPS_MAX: u64 = 40;
/// The maximum backward step of the clock.
const STEP_BACK_MAX: Duration = Duration::from_secs(86_400);
const YEAR: u64 = 365 * 86_400_000_000_000;
const YEAR_2023: u64 = 1_700_000_000_000_000_000;
/// The maximum range of a limit, so that the sums of a scenario stay exact in a script.
const REACH_MAX: u64 = 2 * YEAR;
/// The number of keys.
pub(super) const KEYS: u8 = 2;

/// One step. Keys are numbers, and indexes of earlier steps wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadStep {
    /// A request.
    Ask(u8, Cost),
    /// A request for this limit and another that never changes.
    AskBoth(u8, Cost),
    /// The true cost of a request becomes known, to the current limit or to the one it was made under.
    Settle(usize, Used, bool),
    /// Units are lent to a node.
    Lease(u8, Want),
    /// Lent units are returned, to the current limit or to the one that lent them.
    LeaseReturn(usize, Used, bool),
    /// A debit of a stream, or the last one again.
    Debit(u8, Cost, bool),
    /// Another version takes effect.
    Change(usize),
    /// Time passes.
    Wait(Duration),
    /// The clock steps back.
    StepBack(Duration),
}

/// One limit in several versions, and a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadScenario {
    /// The seed, for replay.
    pub seed: u64,
    /// Of one kind in most scenarios.
    pub versions: Vec<Spec>,
    /// The initial reading of the clock.
    pub start: Timestamp,
    /// The steps, in order.
    pub steps: Vec<ReloadStep>,
}

impl ReloadScenario {
    /// Draws the scenario of a seed.
    pub fn roll(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let first = if dice.once_in(2) { roll_bucket(&mut dice) } else { roll_near(&mut dice) };
        let mut versions = vec![first];
        let (changes_kind, alternates) = (dice.once_in(8), dice.once_in(3));
        for _ in 0..dice.between(1, 3) {
            let last = dice.pick(&versions);
            let next = if changes_kind { roll_near(&mut dice) } else { roll_version(&mut dice, &last) };
            versions.push(next);
        }
        let start = YEAR_2023 + dice.below(3 * YEAR);
        let (mut version, mut steps) = (0, Vec::new());
        for _ in 0..dice.between(6, STEPS_MAX) {
            // Two instances with different numbers: later steps use one or the other.
            if alternates && dice.once_in(2) {
                version = dice.below(versions.len() as u64) as usize;
                steps.push(ReloadStep::Change(version));
            }
            let step = roll_step(&mut dice, &versions, version);
            if let ReloadStep::Change(next) = step {
                version = next;
            }
            steps.push(step);
        }
        Self { seed, versions, start: Timestamp::from_nanos(start - start % MICRO), steps }
    }

    /// Returns every scenario that is smaller by one step.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let without = |index| {
            let mut smaller = self.clone();
            smaller.steps.remove(index);
            smaller
        };
        (0..self.steps.len()).rev().map(without).collect()
    }
}

fn roll_near(dice: &mut Dice) -> Spec {
    loop {
        let spec = roll_shareable(dice);
        if reach(&spec) <= REACH_MAX {
            return spec;
        }
    }
}

fn roll_bucket(dice: &mut Dice) -> Spec {
    loop {
        let spec = roll_near(dice);
        if matches!(spec, Spec::Gcra { .. } | Spec::TokenBucket { .. } | Spec::LeakyBucket { .. }) {
            return spec;
        }
    }
}

/// Draws other numbers of the same kind: close to the last ones half of the time, so that they meet in the
/// same windows.
fn roll_version(dice: &mut Dice, last: &Spec) -> Spec {
    for _ in 0..10_000 {
        let next = if dice.once_in(2) { roll_near(dice) } else { tweak(dice, *last) };
        if follows(last, &next) {
            return next;
        }
    }
    *last
}

/// Returns `true` if a limit of these numbers finds the states of the other.
fn follows(last: &Spec, next: &Spec) -> bool {
    let form = |spec: &Spec| ScriptEncoding::of(&spec.limit().ok()?).ok();
    let (Some(one), Some(other)) = (form(last), form(next)) else { return false };
    let same = one.kind() == other.kind() || (one.kind().is_window() && other.kind().is_window());
    same && one.shape() == other.shape() && last != next && reach(next) <= REACH_MAX
}

fn tweak(dice: &mut Dice, spec: Spec) -> Spec {
    let mut units = |n: u64| match dice.below(6) {
        0 => n + 1,
        1 => n.saturating_sub(1),
        2 => n * 2,
        3 => n / 2,
        4 => n * 10,
        _ => n,
    };
    let (more, burst) = match spec {
        Spec::Gcra { units: n, burst, .. } => (units(n), units(burst)),
        Spec::TokenBucket { capacity, units: n, .. } => (units(n), units(capacity)),
        Spec::LeakyBucket { units: n, .. } => (units(n), 0),
        Spec::Window { limit, .. }
        | Spec::Budget { limit, .. }
        | Spec::SlidingWindow { limit, .. }
        | Spec::SlidingLog { limit, .. } => (units(limit), 0),
    };
    let mut length = |old: Duration| {
        let old = nanos(old);
        let new = dice.pick(&[old, old, old * 2, old / 2, old / 3, old * 60, old / 60, old + MICRO]);
        Duration::from_nanos(new.div_ceil(MICRO) * MICRO)
    };
    match spec {
        Spec::Gcra { period, .. } => Spec::Gcra { units: more, period: length(period), burst },
        Spec::TokenBucket { period, .. } => {
            Spec::TokenBucket { capacity: burst, units: more, period: length(period) }
        }
        Spec::LeakyBucket { period, max_wait, .. } => {
            Spec::LeakyBucket { units: more, period: length(period), max_wait }
        }
        Spec::Window { cadence: Cadence::Every { length: old, anchor }, .. } => {
            Spec::Window { limit: more, cadence: Cadence::Every { length: length(old), anchor } }
        }
        Spec::Budget { cadence: Cadence::Every { length: old, anchor }, .. } => {
            Spec::Budget { limit: more, cadence: Cadence::Every { length: length(old), anchor } }
        }
        // A budget may become a window.
        Spec::Budget { cadence, .. } | Spec::Window { cadence, .. } => Spec::Window { limit: more, cadence },
        Spec::SlidingWindow { length, buckets, exact, .. } => {
            Spec::SlidingWindow { limit: more, length, buckets, exact }
        }
        Spec::SlidingLog { length: old, .. } => Spec::SlidingLog { limit: more, length: length(old) },
    }
}

fn roll_step(dice: &mut Dice, versions: &[Spec], version: usize) -> ReloadStep {
    let (spec, key, nth) = (&versions[version], dice.below(KEYS.into()) as u8, dice.below(64) as usize);
    let cost = if dice.once_in(2) { 1 } else { roll_store_cost(dice, spec) };
    let few = |used: Used| if let Used::More(units) = used { Used::More(units.min(1_000)) } else { used };
    match dice.below(20) {
        6 | 7 => ReloadStep::AskBoth(key, cost),
        8 | 9 => ReloadStep::Settle(nth, few(roll_used(dice, spec)), dice.once_in(2)),
        10 => ReloadStep::Lease(key, roll_want(dice, spec)),
        11 => ReloadStep::LeaseReturn(nth, few(roll_used(dice, spec)), dice.once_in(2)),
        12 | 13 => ReloadStep::Debit(key, cost, dice.once_in(3)),
        14 | 15 => ReloadStep::Change(dice.below(versions.len() as u64) as usize),
        16 if dice.once_in(4) => {
            let back = roll_wait_micros(dice, &dice_spec(dice, versions));
            ReloadStep::StepBack(back.min(STEP_BACK_MAX))
        }
        0..=5 | 16 => ReloadStep::Ask(key, cost),
        _ => ReloadStep::Wait(roll_wait_micros(dice, &dice_spec(dice, versions))),
    }
}

/// Waits follow the rhythm of any version: edges of past versions still count.
fn dice_spec(dice: &Dice, versions: &[Spec]) -> Spec {
    let mut dice = dice.clone();
    dice.pick(versions)
}

impl fmt::Display for ReloadScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, clock at {}", self.seed, self.start)?;
        self.versions.iter().enumerate().try_for_each(|(i, spec)| writeln!(f, "  version {i}: {spec}"))?;
        self.steps.iter().try_for_each(|step| match step {
            ReloadStep::Wait(by) => writeln!(f, "  wait {}", print_duration(*by)),
            ReloadStep::StepBack(by) => writeln!(f, "  step back {}", print_duration(*by)),
            other => writeln!(f, "  {other:?}"),
        })
    }
}
