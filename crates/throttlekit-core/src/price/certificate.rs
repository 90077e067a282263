//! Proof that a solution is optimal, independent of how it was found.

use super::{Budgets, Prices, RequestKind, Solution};

/// Distance of a solution from meeting the Karush–Kuhn–Tucker conditions: zero for an exact one.
///
/// Anyone can compute it from the problem and the solution; all four below a tolerance prove that no other solution is
/// better by more than about that fraction. Fractions are of a budget or of the objective; or of a millionth of the
/// total use or value of all requests, where that is more, since next to zero all rounding is large.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Certificate {
    /// By how much of a budget the fractions overspend it, or a fraction leaves 0 to 1.
    pub primal_excess: f64,
    /// By how much a price is negative.
    pub dual_excess: f64,
    /// Value of complementary-slackness violations, as a fraction of the objective: budget left over at a price, and
    /// admitted parts of kinds below their price or missing parts of kinds above it.
    pub slackness: f64,
    /// The dual objective less the primal one, as a part of it.
    pub gap: f64,
}

impl Certificate {
    /// Examines a solution of this problem.
    pub fn of(kinds: &[RequestKind], budgets: &Budgets, solution: &Solution) -> Self {
        let priced = |kind: &RequestKind| {
            let Prices { rate, cost, hold } = solution.duals;
            rate + cost * kind.cost + if budgets.hold.is_some() { hold * kind.hold } else { 0.0 }
        };
        let pairs = || kinds.iter().zip(&solution.fractions);
        let used =
            |of: fn(&RequestKind) -> f64| pairs().map(|(kind, x)| kind.weight * of(kind) * x).sum::<f64>();
        let all = |of: fn(&RequestKind) -> f64| kinds.iter().map(|kind| kind.weight * of(kind)).sum::<f64>();
        let uses: [fn(&RequestKind) -> f64; 3] = [|_| 1.0, |kind| kind.cost, |kind| kind.hold];
        let whole = [budgets.rate, budgets.cost, budgets.hold.unwrap_or(f64::MAX)];
        let prices = [solution.duals.rate, solution.duals.cost, solution.duals.hold];
        let primal = used(|kind| kind.value);
        let mut dual = 0.0;
        let mut certificate = Self::default();
        for (kind, x) in pairs() {
            let gain = kind.value - priced(kind);
            dual += kind.weight * gain.max(0.0);
            certificate.slackness += kind.weight * if gain > 0.0 { gain * (1.0 - x) } else { -gain * x };
            certificate.primal_excess = certificate.primal_excess.max(-x).max(x - 1.0);
        }
        for ((budget, price), of) in whole.into_iter().zip(prices).zip(uses) {
            if price != 0.0 {
                dual += price * budget;
                certificate.slackness += price.max(0.0) * (budget - used(of)).max(0.0);
            }
            let excess = part(used(of) - budget, budget, all(of));
            certificate.primal_excess = certificate.primal_excess.max(excess);
            certificate.dual_excess = certificate.dual_excess.max(-price);
        }
        let worth = all(|kind| kind.value);
        certificate.slackness = part(certificate.slackness, primal.max(dual), worth);
        certificate.gap = part(dual - primal, primal.max(dual), worth);
        certificate
    }

    /// The largest of the four.
    pub fn worst(&self) -> f64 {
        self.primal_excess.max(self.dual_excess).max(self.slackness).max(self.gap.abs())
    }
}

/// A difference as a part of a whole, or of a millionth of everything.
fn part(difference: f64, whole: f64, everything: f64) -> f64 {
    difference / whole.max(everything * 1e-6).max(f64::MIN_POSITIVE)
}
