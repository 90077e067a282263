//! `bid-price`, the solver: its duals are optimal, and of several the right ones.

use throttlekit_core::price::{
    Budgets, Certificate, PriceError, Prices, RequestKind, Solution, solve_fluid_lp,
};

use super::judge::{by_another_solver, dual_value, in_whole_numbers};
use super::{Check, Problem, ensure};

/// A solver under test.
pub type Solver = fn(&[RequestKind], &Budgets) -> Result<Solution, PriceError>;

/// The maximum error of a certificate.
pub const CERTIFICATE_MAX: f64 = 1e-8;
/// The maximum difference from the judge, which is exact to 10⁻⁷.
const AGREE: f64 = 1e-6;
/// The maximum difference from the result in whole numbers.
const EXACT: f64 = 1e-8;

/// The result for a problem.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verdict {
    /// The largest error of the certificate.
    pub certificate: f64,
    /// True if the judge's duals are the same; otherwise they are another corner of the same value.
    pub same_duals: bool,
}

/// Solves a problem and checks the solution.
pub fn check_solver(solver: Solver, problem: &Problem) -> Result<Verdict, String> {
    let Problem { kinds, budgets, .. } = problem;
    let solution = solver(kinds, budgets).map_err(|error| format!("{error}: {problem:?}"))?;
    let certificate = Certificate::of(kinds, budgets, &solution).worst();
    ensure(certificate <= CERTIFICATE_MAX, || {
        format!("no certificate: {certificate:e} of {solution:?}, {problem:?}")
    })?;
    let (optimum, duals) = by_another_solver(problem)?;
    let whole = kinds.iter().map(|kind| kind.weight * kind.value).sum::<f64>().max(f64::MIN_POSITIVE);
    let agree = |a: f64, b: f64| (a - b).abs() <= AGREE * whole.min(a.max(b)) + 1e-9 * whole;
    ensure(agree(solution.objective, optimum), || {
        format!("{} is not {optimum}: {problem:?}", solution.objective)
    })?;
    ensure(agree(dual_value(problem, &solution.duals), optimum), || {
        format!("duals {:?} are no optimum, {duals:?} are: {problem:?}", solution.duals)
    })?;
    if problem.is_whole() {
        check_ties(problem, &solution)?;
    }
    Ok(Verdict { certificate, same_duals: same(&solution.duals, &duals, AGREE) })
}

fn check_ties(problem: &Problem, solution: &Solution) -> Check {
    let exact = in_whole_numbers(problem);
    ensure(same(&solution.duals, &exact, EXACT), || {
        format!("of the optimal duals {:?}, not {exact:?}: {problem:?}", solution.duals)
    })
}

fn same(a: &Prices, b: &Prices, tolerance: f64) -> bool {
    let close = |a: f64, b: f64| (a - b).abs() <= tolerance * (1.0 + a.max(b));
    close(a.rate, b.rate) && close(a.cost, b.cost) && close(a.hold, b.hold)
}

throttlekit_conformance::bugs! {
    /// A bug of a solver.
    pub enum SolverBug {
        TiesToTheLeastSelective: "Of several optimal duals the least selective are returned.",
        TiesToAny: "Of several optimal duals any are returned.",
        DualSign: "The price of cost has the wrong sign.",
        AxesExchanged: "The prices of rate and cost are swapped.",
        WeightIgnored: "All kinds of requests weigh the same.",
        HoldIgnored: "The budget of slots is ignored.",
        RateIgnored: "The budget of requests is ignored.",
        StopsEarly: "The duals are wrong in the fifth digit.",
        FractionsRounded: "The admitted fractions are rounded to none or all.",
    }
}

impl SolverBug {
    /// Returns a solver with this bug.
    pub fn solver(self) -> Solver {
        match self {
            Self::TiesToTheLeastSelective => |kinds, budgets| {
                // With slightly larger budgets, the last kind that fits is the next one.
                let hold = budgets.hold.map(|hold| hold + 1e-6);
                let more = Budgets { rate: budgets.rate + 1e-6, cost: budgets.cost + 1e-6, hold };
                Ok(Solution { duals: solve_fluid_lp(kinds, &more)?.duals, ..solve_fluid_lp(kinds, budgets)? })
            },
            Self::TiesToAny => |kinds, budgets| {
                let scaled: Vec<RequestKind> = kinds
                    .iter()
                    .enumerate()
                    .map(|(at, kind)| RequestKind { weight: kind.weight * (1.0 + at as f64 * 1e-7), ..*kind })
                    .collect();
                Ok(Solution {
                    duals: solve_fluid_lp(&scaled, budgets)?.duals,
                    ..solve_fluid_lp(kinds, budgets)?
                })
            },
            Self::DualSign => {
                |kinds, budgets| with_duals(kinds, budgets, |duals| Prices { cost: -duals.cost, ..duals })
            }
            Self::AxesExchanged => |kinds, budgets| {
                with_duals(kinds, budgets, |duals| Prices { cost: duals.rate, rate: duals.cost, ..duals })
            },
            Self::WeightIgnored => |kinds, budgets| {
                let even: Vec<RequestKind> =
                    kinds.iter().map(|kind| RequestKind { weight: 1.0, ..*kind }).collect();
                solve_fluid_lp(&even, budgets)
            },
            Self::HoldIgnored => |kinds, budgets| solve_fluid_lp(kinds, &Budgets { hold: None, ..*budgets }),
            Self::RateIgnored => |kinds, budgets| solve_fluid_lp(kinds, &Budgets { rate: 1e9, ..*budgets }),
            Self::StopsEarly => |kinds, budgets| {
                with_duals(kinds, budgets, |duals| Prices {
                    rate: duals.rate * (1.0 + 1e-5),
                    cost: duals.cost * (1.0 + 1e-5),
                    hold: duals.hold * (1.0 + 1e-5),
                })
            },
            Self::FractionsRounded => |kinds, budgets| {
                let solution = solve_fluid_lp(kinds, budgets)?;
                Ok(Solution { fractions: solution.fractions.iter().map(|x| x.round()).collect(), ..solution })
            },
        }
    }
}

fn with_duals(
    kinds: &[RequestKind],
    budgets: &Budgets,
    change: fn(Prices) -> Prices,
) -> Result<Solution, PriceError> {
    let solution = solve_fluid_lp(kinds, budgets)?;
    Ok(Solution { duals: change(solution.duals), ..solution })
}
