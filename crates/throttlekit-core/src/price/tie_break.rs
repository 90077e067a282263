//! The choice between several optimal duals.

use alloc::vec::Vec;
use core::cmp::Ordering;

use super::linear::{self, AXES, Axes, dot};
use super::simplex::{Optimum, Program, ROUNDING, TOLERANCE, highest, without_rounding};

/// Of all corners among the optimal duals, the most selective: it denies the most kinds; then the one with the largest
/// price of hold, of cost, of rate.
///
/// Every optimal dual prices the `tight` unknowns at their value. Three of them leave one dual and nothing to choose,
/// which is the common case and costs nothing. With fewer, the corners of what is left are those where some more
/// kinds are priced at their value, or axes at zero: one of 67 to try for each with two, C(67, 2) with one, C(67, 3)
/// with none, where the optimum fills every budget to the last unit with whole kinds.
pub(super) fn most_selective(program: &Program, optimum: &Optimum) -> Axes {
    let planes: Vec<usize> = (0..program.values.len() + AXES)
        .filter(|plane| program.bounds.get(*plane).is_none_or(|bound| *bound > 0.0))
        .filter(|plane| !optimum.tight.contains(plane))
        .collect();
    let Some(mut best) = Corner::within(program, optimum.duals, f64::INFINITY) else { return optimum.duals };
    let most = best.worth + TOLERANCE * best.worth + ROUNDING * total(program);
    each_choice(&planes, AXES - optimum.tight.len(), &mut optimum.tight.clone(), &mut |members| {
        let next = meeting(program, members).and_then(|duals| Corner::within(program, duals, most));
        if let Some(next) = next.filter(|next| next.compare(&best) == Ordering::Greater) {
            best = next;
        }
    });
    best.duals
}

struct Corner {
    duals: Axes,
    /// The dual objective.
    worth: f64,
    turned_away: usize,
}

impl Corner {
    /// The corner, if its dual objective is at most this. Most exceed it, which shows after a few kinds.
    fn within(program: &Program, duals: Axes, most: f64) -> Option<Self> {
        let mut worth = dot(&program.budgets, &duals);
        let mut turned_away = 0;
        for ((uses, value), bound) in program.uses.iter().zip(&program.values).zip(&program.bounds) {
            let price = dot(uses, &duals);
            worth += bound * (value - price).max(0.0);
            if worth > most {
                return None;
            }
            turned_away += usize::from(*bound > 0.0 && price - value > TOLERANCE * price);
        }
        Some(Self { duals, worth, turned_away })
    }

    fn compare(&self, other: &Self) -> Ordering {
        let by_price = |axis: usize| {
            let (a, b) = (self.duals[axis], other.duals[axis]);
            if (a - b).abs() <= TOLERANCE * a.max(b) { Ordering::Equal } else { a.total_cmp(&b) }
        };
        let by_count = self.turned_away.cmp(&other.turned_away);
        by_count.then_with(|| by_price(2)).then_with(|| by_price(1)).then_with(|| by_price(0))
    }
}

/// The dual that prices each member at its value, if there is one and it is not negative.
fn meeting(program: &Program, members: &[usize]) -> Option<Axes> {
    let members: [usize; AXES] = members.try_into().ok()?;
    let duals = linear::solve(members.map(|m| program.column(m)), members.map(|m| program.value(m)))?;
    let highest = highest(&duals);
    let none_negative = duals.iter().all(|dual| *dual >= -TOLERANCE * highest);
    none_negative.then(|| without_rounding(duals.map(|dual| dual.max(0.0))))
}

/// Calls with every way to add `count` of these to the chosen.
fn each_choice(from: &[usize], count: usize, chosen: &mut Vec<usize>, call: &mut impl FnMut(&[usize])) {
    if count == 0 {
        return call(chosen);
    }
    for (at, next) in from.iter().enumerate() {
        chosen.push(*next);
        each_choice(&from[at + 1..], count - 1, chosen, call);
        chosen.pop();
    }
}

/// Returns the total value of all unknowns.
fn total(program: &Program) -> f64 {
    program.values.iter().zip(&program.bounds).map(|(value, bound)| value * bound).sum()
}
