//! The fluid relaxation of admission: any fraction of a request may be admitted.

use alloc::vec::Vec;

use super::linear::{AXES, dot};
use super::simplex::{Program, TOLERANCE};
use super::tie_break::most_selective;
use super::{Budgets, KINDS_MAX, PriceError, Prices, RequestKind, number};

/// The optimal admission of a workload, and the prices that achieve it.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// Value of one more unit of each budget.
    pub duals: Prices,
    /// Fraction of each kind to admit, from 0 to 1.
    pub fractions: Vec<f64>,
    /// The total value admitted.
    pub objective: f64,
}

/// Solves max Σ w·v·x over 0 ≤ x ≤ 1 with Σ w·x ≤ R, Σ w·c·x ≤ C and Σ w·h·x ≤ K: how much of each kind of request to
/// admit, and at which prices.
///
/// The duals minimise R·p_R + C·p_C + K·p_K + Σ w·max(0, v − p_R − p_C·c − p_K·h) over p ≥ 0. Where several do, a
/// corner of that set is taken: the most selective, which denies the most kinds that have a weight; then the largest
/// p_K, p_C, p_R. A kind whose value is exactly its price clears it. Without a budget of hold, p_K is 0.
///
/// The cost is that of a simplex method with three rows: fewer passes over the kinds than there are kinds, as a rule.
/// Only where budgets come out to the last unit with whole kinds are there corners to compare, C(67, 3) of them at
/// worst. `cargo xtask verify bid-price` prints both in microseconds.
///
/// ```
/// use throttlekit_core::price::{Budgets, RequestKind, solve_fluid_lp};
///
/// let small = RequestKind { weight: 500.0, value: 1.0, cost: 100.0, hold: 0.0 };
/// let large = RequestKind { weight: 500.0, value: 50.0, cost: 10_000.0, hold: 0.0 };
/// let solution = solve_fluid_lp(&[small, large], &Budgets { rate: 1_000.0, cost: 50_000.0, hold: None })?;
/// assert_eq!(solution.fractions, [1.0, 0.0]);
/// assert!((solution.duals.cost - 0.01).abs() < 1e-12);
/// # Ok::<(), throttlekit_core::price::PriceError>(())
/// ```
pub fn solve_fluid_lp(kinds: &[RequestKind], budgets: &Budgets) -> Result<Solution, PriceError> {
    validate(kinds, budgets)?;
    let scale = Scale::of(kinds);
    let program = scale.program(kinds, budgets);
    let optimum = program.maximise().ok_or(PriceError::Unsolved)?;
    let duals = if optimum.tight.len() == AXES { optimum.duals } else { most_selective(&program, &optimum) };
    let part = |(amount, bound): (&f64, &f64)| if *bound > 0.0 { amount / bound } else { 0.0 };
    let fractions: Vec<f64> = optimum.amounts.iter().zip(&program.bounds).map(part).collect();
    let objective = kinds.iter().zip(&fractions).map(|(kind, x)| kind.weight * kind.value * x).sum();
    Ok(Solution { duals: clear_the_margin(kinds, &scale, scale.prices(duals)), fractions, objective })
}

fn validate(kinds: &[RequestKind], budgets: &Budgets) -> Result<(), PriceError> {
    if kinds.len() > KINDS_MAX {
        return Err(PriceError::TooManyKinds(kinds.len()));
    }
    for kind in kinds {
        number("weight", kind.weight)?;
        number("value", kind.value)?;
        number("cost", kind.cost)?;
        number("hold", kind.hold)?;
    }
    number("budget of requests", budgets.rate)?;
    number("budget of cost", budgets.cost)?;
    number("budget of slot-seconds", budgets.hold.unwrap_or(0.0))?;
    if kinds.iter().any(|kind| kind.weight > 0.0) { Ok(()) } else { Err(PriceError::Empty) }
}

/// The largest of each number, by which they are divided; so every tolerance is relative.
struct Scale {
    weight: f64,
    value: f64,
    cost: f64,
    hold: f64,
}

impl Scale {
    fn of(kinds: &[RequestKind]) -> Self {
        let counted = || kinds.iter().filter(|kind| kind.weight > 0.0);
        let largest = |of: fn(&RequestKind) -> f64| match counted().map(of).fold(0.0, f64::max) {
            0.0 => 1.0,
            most => most,
        };
        Self {
            weight: largest(|kind| kind.weight),
            value: largest(|kind| kind.value),
            cost: largest(|kind| kind.cost),
            hold: largest(|kind| kind.hold),
        }
    }

    fn program(&self, kinds: &[RequestKind], budgets: &Budgets) -> Program {
        // All kinds together use at most one for each of them, so more than this binds as little.
        let enough = 2.0 * kinds.len() as f64;
        let budget = |whole: f64, unit: f64| (whole / self.weight / unit).min(enough);
        let hold = |kind: &RequestKind| if budgets.hold.is_some() { kind.hold / self.hold } else { 0.0 };
        let rated = |kind: &RequestKind| if kind.weight > 0.0 { 1.0 } else { 0.0 };
        Program {
            uses: kinds
                .iter()
                .map(|kind| [1.0, kind.cost / self.cost, hold(kind)].map(|use_| use_ * rated(kind)))
                .collect(),
            values: kinds.iter().map(|kind| kind.value / self.value * rated(kind)).collect(),
            bounds: kinds.iter().map(|kind| kind.weight / self.weight).collect(),
            budgets: [
                budget(budgets.rate, 1.0),
                budget(budgets.cost, self.cost),
                budgets.hold.map_or(enough, |whole| budget(whole, self.hold)),
            ],
        }
    }

    fn prices(&self, duals: [f64; AXES]) -> Prices {
        let [rate, cost, hold] = duals.map(|dual| dual.max(0.0) * self.value);
        let finite = |price: f64| price.min(f64::MAX);
        Prices { rate: finite(rate), cost: finite(cost / self.cost), hold: finite(hold / self.hold) }
    }
}

/// Lowers prices by what rounding may have added, so that kinds whose value is exactly their price clear it.
///
/// Of the axes that have a price, the one that the kind uses most is lowered: this changes others least.
fn clear_the_margin(kinds: &[RequestKind], scale: &Scale, prices: Prices) -> Prices {
    const TRIES: u32 = 8;
    let mut prices = [prices.rate, prices.cost, prices.hold];
    for kind in kinds.iter().filter(|kind| kind.weight > 0.0) {
        let uses = [1.0, kind.cost, kind.hold];
        let scaled = [1.0, kind.cost / scale.cost, kind.hold / scale.hold];
        for _ in 0..TRIES {
            let over = dot(&uses, &prices) - kind.value;
            let Some(axis) = (0..AXES)
                .filter(|axis| prices[*axis] > 0.0 && uses[*axis] > 0.0)
                .max_by(|a, b| scaled[*a].total_cmp(&scaled[*b]))
                .filter(|_| over > 0.0 && over <= TOLERANCE * kind.value)
            else {
                break;
            };
            prices[axis] = (prices[axis] - 2.0 * over / uses[axis]).max(0.0);
        }
    }
    let [rate, cost, hold] = prices;
    Prices { rate, cost, hold }
}
