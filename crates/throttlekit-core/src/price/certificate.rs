//! What shows that a solution is optimal, without trusting how it was found.

use super::{Budgets, Kind, Prices, Solution};

/// How far a solution is from meeting the Karush–Kuhn–Tucker conditions. Each is relative, and zero for an exact one.
///
/// Anyone can compute it from the problem and the solution; all four below a tolerance prove that no other solution
/// is better by more than about that part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Certificate {
    /// By how much of a budget the fractions overspend it, or a fraction leaves 0 to 1.
    pub primal_excess: f64,
    /// By how much a price is negative.
    pub dual_excess: f64,
    /// The worth of what should not be there, as a part of the objective: budget left over at a price, and admitted
    /// parts of kinds below their price or missing parts of kinds above it.
    pub slackness: f64,
    /// The dual objective less the primal one, as a part of it.
    pub gap: f64,
}

impl Certificate {
    /// Examines a solution of this problem.
    pub fn of(kinds: &[Kind], budgets: &Budgets, solution: &Solution) -> Self {
        let priced = |kind: &Kind| {
            let Prices { rate, cost, hold } = solution.duals;
            rate + cost * kind.cost + if budgets.hold.is_some() { hold * kind.hold } else { 0.0 }
        };
        let pairs = || kinds.iter().zip(&solution.fractions);
        let used = |of: fn(&Kind) -> f64| pairs().map(|(kind, x)| kind.weight * of(kind) * x).sum::<f64>();
        let axes = [
            (budgets.rate, used(|_| 1.0), solution.duals.rate),
            (budgets.cost, used(|kind| kind.cost), solution.duals.cost),
            (budgets.hold.unwrap_or(f64::MAX), used(|kind| kind.hold), solution.duals.hold),
        ];
        let primal: f64 = pairs().map(|(kind, x)| kind.weight * kind.value * x).sum();
        let mut dual = 0.0;
        let mut certificate = Self::default();
        for (kind, x) in pairs() {
            let gain = kind.value - priced(kind);
            dual += kind.weight * gain.max(0.0);
            certificate.slackness += kind.weight * if gain > 0.0 { gain * (1.0 - x) } else { -gain * x };
            certificate.primal_excess = certificate.primal_excess.max(-x).max(x - 1.0);
        }
        for (budget, used, price) in axes {
            if price != 0.0 {
                dual += price * budget;
                certificate.slackness += price.max(0.0) * (budget - used).max(0.0);
            }
            let excess = if used > budget { (used - budget) / used } else { 0.0 };
            certificate.primal_excess = certificate.primal_excess.max(excess);
            certificate.dual_excess = certificate.dual_excess.max(-price);
        }
        let whole = primal.max(dual).max(f64::MIN_POSITIVE);
        certificate.slackness /= whole;
        certificate.gap = (dual - primal) / whole;
        certificate
    }

    /// The largest of the four.
    pub fn worst(&self) -> f64 {
        self.primal_excess.max(self.dual_excess).max(self.slackness).max(self.gap.abs())
    }
}
