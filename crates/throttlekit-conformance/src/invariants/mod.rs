//! The invariants of the rate axis, each as a check over random scenarios, each with the bugs it must find.
//!
//! An invariant that cannot fail shows nothing. So every check is a function of the rule under test: the same function
//! checks the real rules and rules with a seeded bug, and both outcomes are tested.

mod algebra;
mod bounded_memory;
mod clock_back;
mod deny_is_free;
mod faults;
mod forecast;
mod judge;
mod rate_exact;
mod seeded;
mod settle;
mod settle_faults;
mod word;
mod word_settle;

use std::fmt;
use std::ops::Range;

use throttlekit_core::rate::Limit;

use crate::bugs::Found;
use crate::check::{Check, ensure};
use crate::{Scenario, Spec};
pub use judge::Judge;
pub(crate) use judge::local_period;
pub use seeded::{Bug, Seeded};

/// An invariant, its check, and the bugs that the check must find.
pub struct Invariant {
    /// Name as in `docs/reference/guarantees.md`: the guarantee, and after a slash its part.
    pub name: &'static str,
    /// The check on the real rules.
    pub holds: Trial,
    /// The same check on rules with a bug.
    pub seeded: Vec<(&'static str, Trial)>,
}

/// The check of one seeded case.
pub type Trial = Box<dyn Fn(u64) -> Result<(), Violation> + Send + Sync>;

/// A case that violates an invariant.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Replays the case.
    pub seed: u64,
    /// Expected and actual behavior, with the shortest counterexample found.
    pub counterexample: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.counterexample)
    }
}

impl Invariant {
    /// Checks the cases of these seeds; stops at the first violation.
    pub fn check(&self, seeds: Range<u64>) -> Result<(), Violation> {
        seeds.into_iter().try_for_each(&self.holds)
    }

    /// Looks for every seeded bug in at most `cases_max` cases each.
    pub fn find_seeded(&self, cases_max: u64) -> Found {
        let mut outcome = Found::default();
        for (bug, trial) in &self.seeded {
            outcome.note(bug, (0..cases_max).any(|seed| trial(seed).is_err()));
        }
        outcome
    }

    /// Returns the number of cases until the check finds the seeded bug, if `cases_max` are enough.
    pub fn find(&self, bug: &str, cases_max: u64) -> Option<u64> {
        let (_, trial) = self.seeded.iter().find(|(name, _)| *name == bug)?;
        (0..cases_max).find(|seed| trial(*seed).is_err()).map(|seed| seed + 1)
    }
}

/// Returns every invariant of the rate axis.
pub fn all() -> Vec<Invariant> {
    vec![
        algebra::invariant(),
        rate_exact::bound(),
        rate_exact::tight(),
        rate_exact::retry(),
        clock_back::each_ask(),
        clock_back::total(),
        deny_is_free::one(),
        deny_is_free::many(),
        word::invariant(),
        bounded_memory::join(),
        bounded_memory::forget(),
        forecast::invariant(),
        settle::replay(),
        settle::refund(),
        settle::debt(),
        word_settle::invariant(),
    ]
}

/// Returns the invariant with this name.
pub fn named(name: &str) -> Option<Invariant> {
    all().into_iter().find(|invariant| invariant.name == name)
}

/// Creates a trial over the scenarios that `roll` generates. A failing scenario is shrunk before it is reported.
fn over_scenarios(
    roll: impl Fn(u64) -> Scenario + Send + Sync + 'static,
    check: impl Fn(&Scenario) -> Check + Send + Sync + 'static,
) -> Trial {
    Box::new(move |seed| {
        let scenario = roll(seed);
        let Err(first) = check(&scenario) else { return Ok(()) };
        let short = scenario.shrink(|shorter| check(shorter).is_err());
        let problem = check(&short).err().unwrap_or(first);
        Err(Violation { seed, counterexample: format!("{problem}\n{short}") })
    })
}

/// Returns the limit of a scenario. Scenarios have valid descriptions.
fn limit(spec: &Spec) -> Limit {
    spec.limit().expect("scenarios have valid limits")
}
