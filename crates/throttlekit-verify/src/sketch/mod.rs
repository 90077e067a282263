//! `sketch`: whoever is allowed has been admitted no more than the limit, always; who is denied early is denied within
//! ε·N with probability 1 − δ; merged sketches are the sketch of everything.
//!
//! As with the other invariants, a check is a function of the limiter under test; the same one judges those that ship
//! and those with a seeded bug.

mod early;
mod equal_bytes;
mod merge;
mod safety;
mod seeded;
mod subject;
mod threads;
mod traffic;

pub use early::{Early, early_denials};
pub use equal_bytes::{Contest, FLOODS, contest};
pub use merge::check_merge;
pub use safety::{Tally, check_alone, check_scenario};
pub use seeded::{Merge, MergeBug, RACY, SketchBug};
pub use subject::{Config, Kind, SharedShield, Shield, shipped};
pub use threads::check_threads;
pub use traffic::Traffic;

use std::ops::Range;

use throttlekit_conformance::Dice;
use throttlekit_conformance::bugs::Found;
use throttlekit_conformance::check::{Check, ensure};

/// How much to examine.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Scenarios of adversarial traffic for one limiter.
    pub scenarios: u64,
    /// Asks in each.
    pub asks: u64,
    /// Secrets with which the error is measured.
    pub secrets: u64,
    /// Fleets of 64 nodes.
    pub fleets: u64,
    /// Asks by each of two threads.
    pub thread_asks: u64,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What was offered and admitted.
    pub tally: Tally,
    /// How often a key was counted too high.
    pub early: Vec<Early>,
    /// What does not hold.
    pub violations: Vec<String>,
}

/// What is not told again when there is more of it.
const VIOLATIONS_MAX: usize = 3;

/// Examines the limiters that ship.
pub fn examine(size: Size) -> Findings {
    let mut found = Findings::default();
    for kind in Kind::ALL {
        found.add(examine_shield(kind, size, |config| shipped(kind, config)));
    }
    found.violations.extend(examine_rest(size));
    found
}

/// What is wrong with those that ship on two threads, and with merging.
pub fn examine_rest(size: Size) -> Vec<String> {
    let threads = Kind::ALL.map(|kind| check_threads(kind, size.thread_asks, subject::shared));
    let merge = check_merge(size.fleets, |into, from| into.merge(from).is_ok());
    threads.into_iter().chain([merge]).filter_map(Result::err).collect()
}

/// Looks for the seeded bugs with the same checks.
pub fn find_seeded(size: Size) -> Found {
    let sketches = Found::all(|bug: SketchBug| {
        let found = examine_shield(bug.kind(), size, |config| seeded::shield(bug, config));
        !found.violations.is_empty()
    });
    let merges = Found::all(|bug: MergeBug| check_merge(size.fleets, bug.merge()).is_err());
    let racy = check_threads(Kind::Sketch, size.thread_asks, |_, config| seeded::racy(config));
    let mut all = sketches.merge(merges);
    all.note(RACY, racy.is_err());
    all
}

/// Every check of a limiter on one thread: scenarios of floods, then, if nothing was found in those, its error.
pub fn examine_shield(kind: Kind, size: Size, make: impl Fn(&Config) -> Box<dyn Shield>) -> Findings {
    let mut found = examine_scenarios(kind, 0..size.scenarios, size.asks, &make);
    if found.violations.is_empty() {
        found.early = early_denials(kind, size.secrets, make);
        found.violations.extend(found.early.iter().filter_map(|early| early.check().err()));
    }
    found
}

/// Floods a limiter in each of these scenarios.
pub fn examine_scenarios(
    kind: Kind,
    scenarios: Range<u64>,
    asks: u64,
    make: impl Fn(&Config) -> Box<dyn Shield>,
) -> Findings {
    let mut found = Findings::default();
    for seed in scenarios {
        let mut dice = Dice::new(seed);
        let config = Config::random(kind, &mut dice);
        let played = check_scenario(&config, &mut *make(&config), &mut dice, asks);
        let played = played.map(|tally| found.tally.add(tally));
        let alone = check_alone(&config, &mut *make(&config), &mut dice);
        let counterexamples = [played, alone].into_iter().filter_map(Result::err);
        found.violations.extend(
            counterexamples.map(|counterexample| format!("{kind:?}, scenario {seed}: {counterexample}")),
        );
        if found.violations.len() >= VIOLATIONS_MAX {
            break;
        }
    }
    found
}

impl Findings {
    /// Adds what was found elsewhere.
    pub fn add(&mut self, more: Self) {
        self.tally.add(more.tally);
        self.early.extend(more.early);
        self.violations.extend(more.violations);
    }
}
