//! `bid-price`: prices only remove admits, the duals are optimal, and a refiner changes them only for the
//! better.
//!
//! As with the other invariants, a check is a function of the subject under test; the same one runs on the
//! real subject and on one with a seeded bug. Beside them are the experiments: [`two_axes`] and
//! [`three_axes`], the earnings of pricing.

mod filter;
mod judge;
mod mulberry;
pub mod policy;
mod problem;
mod refine;
mod removes;
mod seeded;
mod solver;
pub mod three_axes;
pub mod two_axes;

use throttlekit_core::price::{Prices, solve_fluid_lp};

pub use filter::{Filter, FilterBug, check_filter};
pub use mulberry::Mulberry;
pub use problem::{FAMILIES, Family, Problem};
pub use refine::{Belief, Make, check_refiner, real};
pub use removes::{Admission, Limits, PassBug, check_removes, price_then_limits};
pub use seeded::{RefinerBug, SeededRefiner};
pub use solver::{CERTIFICATE_MAX, Solver, SolverBug, Verdict, check_solver};
use throttlekit_conformance::bugs::Found;
use throttlekit_conformance::check::{Check, ensure};

/// The size of an examination.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Problems solved and checked.
    pub problems: u64,
    /// Streams run on a refiner, each with some thirty repricings.
    pub refiners: u64,
    /// Streams on which prices must only remove admits, and as many bids.
    pub streams: u64,
}

/// The findings.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Problems solved.
    pub problems: u64,
    /// Problems for which the judge found the same duals; in the rest there are several.
    pub same_duals: u64,
    /// The worst certificate.
    pub certificate: f64,
    /// The number of times a refiner adopted other prices.
    pub adopted: u64,
    /// The violations.
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
            Err(counterexample) => found.violations.push(format!("problem {seed}: {counterexample}")),
        }
        found.problems += 1;
    }
    for seed in 0..size.refiners {
        match check_refiner(&real, seed) {
            Ok(adopted) => found.adopted += adopted,
            Err(counterexample) => found.violations.push(counterexample),
        }
    }
    for seed in 0..size.streams {
        found.violations.extend(check_filter(Prices::admits, seed).err());
        found.violations.extend(check_removes(price_then_limits, seed).err());
    }
    found
}

/// Searches for the seeded bugs with the same checks.
pub fn find_seeded(size: Size) -> Found {
    let solvers = Found::all(|bug: SolverBug| {
        (0..size.problems).any(|seed| check_solver(bug.solver(), &Problem::roll(seed)).is_err())
    });
    let refiners = Found::all(|bug: RefinerBug| {
        let make =
            |belief: &Belief| -> Box<dyn policy::Reprices> { Box::new(SeededRefiner::new(bug, belief)) };
        (0..size.refiners).any(|seed| check_refiner(&make, seed).is_err())
    });
    let filters =
        Found::all(|bug: FilterBug| (0..size.streams).any(|seed| check_filter(bug.filter(), seed).is_err()));
    let passes = Found::all(|bug: PassBug| {
        (0..size.streams).any(|seed| check_removes(bug.admission(), seed).is_err())
    });
    solvers.merge(refiners).merge(filters).merge(passes)
}
