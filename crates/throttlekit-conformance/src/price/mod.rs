//! `bid-price`: prices only remove admits, the duals are optimal, and a refiner changes them only for the better.
//!
//! As with the other laws, a check is a function of what is under test; the same one judges the real thing and the one
//! with a planted bug. Beside them are the experiments: [`two_axes`] and [`three_axes`], what pricing earns.

mod filter;
mod judge;
mod mulberry;
mod planted;
pub mod policy;
mod problem;
mod refine;
mod removes;
mod solver;
pub mod three_axes;
pub mod two_axes;

use throttlekit_core::price::{Prices, solve_fluid_lp};

use crate::check::{Check, ensure};
pub use filter::{FILTER_BUGS, Filter, check_filter};
pub use mulberry::Mulberry;
pub use planted::{PlantedRefiner, REFINER_BUGS, RefinerBug};
pub use problem::{FAMILIES, Family, Problem};
pub use refine::{Belief, Make, check_refiner, real};
pub use removes::{ADMISSION_BUGS, Admission, Limits, check_removes, price_then_limits};
pub use solver::{CERTIFICATE_MAX, SOLVER_BUGS, Solver, Verdict, check_solver};

/// How much to examine.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Problems solved and judged.
    pub problems: u64,
    /// Streams played to a refiner, each with some thirty looks at its prices.
    pub refiners: u64,
    /// Streams on which prices must only remove admits, and as many bids.
    pub streams: u64,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Problems solved.
    pub problems: u64,
    /// Of these, where the judge found the same duals; in the rest there are several.
    pub same_duals: u64,
    /// The worst certificate.
    pub certificate: f64,
    /// How often a refiner adopted other prices.
    pub adopted: u64,
    /// What does not hold.
    pub violations: Vec<String>,
}

/// Examines the core.
pub fn examine(size: Size) -> Findings {
    let mut found = Findings::default();
    for seed in 0..size.problems {
        match check_solver(solve_fluid_lp, &Problem::roll(seed)) {
            Ok(verdict) => {
                found.certificate = found.certificate.max(verdict.certificate);
                found.same_duals += u64::from(verdict.same_duals);
            }
            Err(story) => found.violations.push(format!("problem {seed}: {story}")),
        }
        found.problems += 1;
    }
    for seed in 0..size.refiners {
        match check_refiner(&real, seed) {
            Ok(adopted) => found.adopted += adopted,
            Err(story) => found.violations.push(story),
        }
    }
    for seed in 0..size.streams {
        found.violations.extend(check_filter(Prices::admits, seed).err());
        found.violations.extend(check_removes(price_then_limits, seed).err());
    }
    found
}

/// The planted bugs that the same checks find, and those they do not.
pub fn examine_planted(size: Size) -> (Vec<&'static str>, Vec<&'static str>) {
    let mut all: Vec<(&'static str, bool)> = Vec::new();
    let mut note = |name, seeds: u64, fails: &dyn Fn(u64) -> bool| all.push((name, (0..seeds).any(fails)));
    for (name, solver) in SOLVER_BUGS {
        note(name, size.problems, &|seed| check_solver(solver, &Problem::roll(seed)).is_err());
    }
    for (name, bug) in REFINER_BUGS {
        let make =
            |belief: &Belief| -> Box<dyn policy::Reprices> { Box::new(PlantedRefiner::new(bug, belief)) };
        note(name, size.refiners, &|seed| check_refiner(&make, seed).is_err());
    }
    for (name, filter) in FILTER_BUGS {
        note(name, size.streams, &|seed| check_filter(filter, seed).is_err());
    }
    for (name, admission) in ADMISSION_BUGS {
        note(name, size.streams, &|seed| check_removes(admission, seed).is_err());
    }
    let (found, missed): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, found)| *found);
    let names = |of: Vec<(&'static str, bool)>| of.into_iter().map(|(name, _)| name).collect();
    (names(found), names(missed))
}
