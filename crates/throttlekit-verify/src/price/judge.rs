//! Judges of a solution that share nothing with the solver: another LP solver, and whole numbers.

use std::cmp::Ordering;

use microlp::{ComparisonOp, OptimizationDirection, Problem as Program};
use throttlekit_core::price::{Prices, RequestKind};

use super::Problem;

/// Returns the optimal value and an optimal dual by another solver, which solves the dual problem itself.
pub(super) fn by_another_solver(problem: &Problem) -> Result<(f64, Prices), String> {
    let mut program = Program::new(OptimizationDirection::Minimize);
    let free = (0.0, f64::INFINITY);
    let prices = budgets(problem).map(|budget| budget.map(|budget| program.add_var(budget, free)));
    for kind in &problem.kinds {
        // The gain of a kind is at least its value minus its price.
        let gain = program.add_var(kind.weight, free);
        let mut terms = vec![(gain, 1.0)];
        terms.extend(
            prices.iter().zip(uses(kind)).filter_map(|(price, use_)| price.map(|price| (price, use_))),
        );
        program.add_constraint(terms, ComparisonOp::Ge, kind.value);
    }
    let solved =
        program.solve().and_then(|solved| solved.into_solution().map_err(|_| unreachable!("no time limit")));
    let solution = solved.map_err(|error| format!("the judge gives up: {error}"))?;
    let [rate, cost, hold] = prices.map(|price| price.map_or(0.0, |price| solution.var_value(price)));
    Ok((solution.objective(), Prices { rate, cost, hold }))
}

/// Returns the value of the dual problem at these prices.
pub(super) fn dual_value(problem: &Problem, prices: &Prices) -> f64 {
    let duals = [prices.rate, prices.cost, prices.hold];
    let spent: f64 =
        budgets(problem).iter().zip(duals).map(|(budget, dual)| budget.unwrap_or(0.0) * dual).sum();
    let gain = |kind: &RequestKind| {
        let price: f64 = uses(kind).iter().zip(duals).map(|(use_, dual)| use_ * dual).sum();
        kind.weight * (kind.value - price).max(0.0)
    };
    spent + problem.kinds.iter().map(gain).sum::<f64>()
}

fn uses(kind: &RequestKind) -> [f64; 3] {
    [1.0, kind.cost, kind.hold]
}

fn budgets(problem: &Problem) -> [Option<f64>; 3] {
    [Some(problem.budgets.rate), Some(problem.budgets.cost), problem.budgets.hold]
}

/// A corner among the duals, in whole numbers: each price is its part of `scale`.
#[derive(Clone, Copy, Debug)]
struct Corner {
    parts: [i128; 3],
    scale: i128,
    worth: i128,
    turned_away: usize,
}

/// Returns the dual that the tie-breaking rule selects, found in whole numbers by trying every corner.
///
/// For problems of small whole numbers only.
pub(super) fn in_whole_numbers(problem: &Problem) -> Prices {
    let whole = |n: f64| n as i128;
    let mut planes: Vec<([i128; 3], i128)> =
        problem.kinds.iter().map(|kind| (uses(kind).map(whole), whole(kind.value))).collect();
    planes.extend((0..3).map(|axis| (std::array::from_fn(|at| i128::from(at == axis)), 0)));
    let mut best: Option<Corner> = None;
    for a in 0..planes.len() {
        for b in 0..a {
            for c in 0..b {
                let Some(corner) = Corner::at(problem, [planes[a], planes[b], planes[c]]) else { continue };
                if best.is_none_or(|best| corner.compare(&best) == Ordering::Greater) {
                    best = Some(corner);
                }
            }
        }
    }
    let best = best.expect("the corner of free prices is always there");
    let [rate, cost, hold] = best.parts.map(|part| part as f64 / best.scale as f64);
    Prices { rate, cost, hold }
}

impl Corner {
    /// Returns the intersection of three planes, if it is a point without negative prices.
    fn at(problem: &Problem, planes: [([i128; 3], i128); 3]) -> Option<Self> {
        let rows = planes.map(|(uses, _)| uses);
        let instead_of = |axis: usize| {
            let mut rows = rows;
            rows.iter_mut().zip(planes).for_each(|(row, (_, value))| row[axis] = value);
            determinant(&rows)
        };
        let determinant = determinant(&rows);
        let scale = determinant.abs();
        let parts = [0, 1, 2].map(|axis| instead_of(axis) * determinant.signum());
        let legal = parts.iter().all(|part| *part >= 0) && (problem.budgets.hold.is_some() || parts[2] == 0);
        if determinant == 0 || !legal {
            return None;
        }
        let spent: i128 = budgets(problem)
            .iter()
            .zip(parts)
            .map(|(budget, part)| budget.unwrap_or(0.0) as i128 * part)
            .sum();
        let gains = problem.kinds.iter().map(|kind| {
            let price: i128 = uses(kind).iter().zip(parts).map(|(use_, part)| *use_ as i128 * part).sum();
            (kind.weight as i128, kind.value as i128 * scale - price)
        });
        let worth = spent + gains.clone().map(|(weight, gain)| weight * gain.max(0)).sum::<i128>();
        let turned_away = gains.filter(|(_, gain)| *gain < 0).count();
        Some(Self { parts, scale, worth, turned_away })
    }

    /// Better has a lower value, rejects more, and costs more: hold before cost before rate.
    fn compare(&self, other: &Self) -> Ordering {
        let by = |of: fn(&Self) -> i128| (of(self) * other.scale).cmp(&(of(other) * self.scale));
        let turned_away = self.turned_away.cmp(&other.turned_away);
        let prices = by(|c| c.parts[2]).then(by(|c| c.parts[1])).then(by(|c| c.parts[0]));
        by(|c| c.worth).reverse().then(turned_away).then(prices)
    }
}

fn determinant(m: &[[i128; 3]; 3]) -> i128 {
    let minor = |a: usize, b: usize| m[1][a] * m[2][b] - m[1][b] * m[2][a];
    m[0][0] * minor(1, 2) - m[0][1] * minor(0, 2) + m[0][2] * minor(0, 1)
}
