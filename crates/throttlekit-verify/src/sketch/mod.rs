//! `sketch`: an allowed key has been admitted at most the limit, always; an early denial is within ε·N with
//! probability 1 − δ; merged sketches are the sketch of everything.
//!
//! As with the other invariants, a check is a function of the limiter under test; the same one runs on the
//! production limiters and on those with a seeded bug.

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

/// The size of an examination.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Scenarios of adversarial traffic for one limiter.
    pub scenarios: u64,
    /// Requests in each.
    pub asks: u64,
    /// Secrets with which the error is measured.
    pub secrets: u64,
    /// Groups of 64 nodes.
    pub fleets: u64,
    /// Requests by each of two threads.
    pub thread_asks: u64,
}

/// The findings.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Offered and admitted units.
    pub tally: Tally,
    /// The frequencies of overestimates.
    pub early: Vec<Early>,
    /// The violations.
    pub violations: Vec<String>,
}

/// The maximum number of reported violations.
const VIOLATIONS_MAX: usize = 3;

/// Examines the production limiters.
pub fn examine(size: Size) -> Findings {
    let mut found = Findings::default();
    for kind in Kind::ALL {
        found.add(examine_shield(kind, size, |config| shipped(kind, config)));
    }
    found.violations.extend(examine_rest(size));
    found
}

/// Returns the violations of the production limiters on two threads, and of merging.
pub fn examine_rest(size: Size) -> Vec<String> {
    let threads = Kind::ALL.map(|kind| check_threads(kind, size.thread_asks, subject::shared));
    let merge = check_merge(size.fleets, |into, from| into.merge(from).is_ok());
    threads.into_iter().chain([merge]).filter_map(Result::err).collect()
}

/// Searches for the seeded bugs with the same checks.
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

/// Runs every check of a limiter on one thread: scenarios of floods, then, if nothing was found in those, its
/// error.
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
    /// Adds other findings.
    pub fn add(&mut self, more: Self) {
        self.tally.add(more.tally);
        self.early.extend(more.early);
        self.violations.extend(more.violations);
    }
}
