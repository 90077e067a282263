//! The laws of the rate axis, each as a check over random worlds, each with the bugs it must find.
//!
//! A law that cannot fail says nothing. So every law is a function of the rule under test: the same function
//! judges the real rules and rules with a seeded bug, and both outcomes are tested.

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
use crate::{Spec, World};
pub use judge::Judge;
pub use seeded::{Bug, Seeded};

/// A promise, how it is checked, and the bugs its check must find.
pub struct Law {
    /// As in `docs/guarantees.md`: the law, and after a slash which part of it.
    pub name: &'static str,
    /// The check on the real rules.
    pub holds: Trial,
    /// The same check on rules with a bug.
    pub seeded: Vec<(&'static str, Trial)>,
}

/// The check of one seeded case.
pub type Trial = Box<dyn Fn(u64) -> Result<(), Violation> + Send + Sync>;

/// A case that broke a law: what replays it, and what happened.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Replays the case.
    pub seed: u64,
    /// What was promised and what happened instead, with the shortest story found.
    pub story: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.story)
    }
}

impl Law {
    /// Checks the cases of these seeds; the first violation ends it.
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

    /// How many cases it takes until the check finds the seeded bug, if `cases_max` are enough.
    pub fn find(&self, bug: &str, cases_max: u64) -> Option<u64> {
        let (_, trial) = self.seeded.iter().find(|(name, _)| *name == bug)?;
        (0..cases_max).find(|seed| trial(*seed).is_err()).map(|seed| seed + 1)
    }
}

/// Every law of the rate axis.
pub fn all() -> Vec<Law> {
    vec![
        algebra::law(),
        rate_exact::bound(),
        rate_exact::tight(),
        rate_exact::retry(),
        clock_back::each_ask(),
        clock_back::total(),
        deny_is_free::one(),
        deny_is_free::many(),
        word::law(),
        bounded_memory::join(),
        bounded_memory::forget(),
        forecast::law(),
        settle::replay(),
        settle::refund(),
        settle::debt(),
        word_settle::law(),
    ]
}

/// The law of a name.
pub fn named(name: &str) -> Option<Law> {
    all().into_iter().find(|law| law.name == name)
}

/// A trial over the worlds that `roll` makes. A failing world is shortened before it is told.
fn over_worlds(
    roll: impl Fn(u64) -> World + Send + Sync + 'static,
    check: impl Fn(&World) -> Check + Send + Sync + 'static,
) -> Trial {
    Box::new(move |seed| {
        let world = roll(seed);
        let Err(first) = check(&world) else { return Ok(()) };
        let short = world.shrink(|shorter| check(shorter).is_err());
        let problem = check(&short).err().unwrap_or(first);
        Err(Violation { seed, story: format!("{problem}\n{short}") })
    })
}

/// The limit of a world. Worlds are made of valid descriptions.
fn limit(spec: &Spec) -> Limit {
    spec.limit().expect("worlds hold valid limits")
}
