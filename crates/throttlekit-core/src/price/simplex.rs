//! The simplex method for three constraints and many bounded unknowns.

use alloc::vec;
use alloc::vec::Vec;

use super::linear::{self, AXES, Axes, dot};

/// Threshold below which a number, relative to those it came from, counts as zero.
pub(super) const TOLERANCE: f64 = 1e-9;
/// Rounding error of a zero, relative to a total of about 1.
pub(super) const ROUNDING: f64 = 1e-13;
/// A gain this small beside the value and the prices it is the difference of is rounding.
const GAIN_MIN: f64 = 1e-12;
/// A step along which an unknown changes less than this per unit does not move it.
const MOVE_MIN: f64 = 1e-11;
/// From this many pivots per unknown on, the order of pivots is one that cannot cycle.
const QUICK_PIVOTS: usize = 4;
/// Number of pivots per unknown after which the method gives up. Random problems take one at most.
const PIVOTS_MAX: usize = 64;

/// Maximise Σ value·y over 0 ≤ y ≤ bound with Σ use·y ≤ budget on each axis.
///
/// The numbers are scaled: uses, values and bounds are at most 1, and one of each is 1.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) uses: Vec<Axes>,
    pub(super) values: Vec<f64>,
    pub(super) bounds: Vec<f64>,
    pub(super) budgets: Axes,
}

/// The point at which the method stopped: an optimum, as no pivot gains anything.
#[derive(Clone, Debug)]
pub(super) struct Optimum {
    /// Amount of each unknown.
    pub(super) amounts: Vec<f64>,
    /// Value of a unit of each budget.
    pub(super) duals: Axes,
    /// The unknowns that are strictly between their bounds; any optimal dual prices them at their value. One at or
    /// past the number of unknowns is the slack of an axis, whose dual is zero.
    pub(super) tight: Vec<usize>,
}

/// The unknowns are numbered; past them come the slacks of the axes.
struct Basis<'a> {
    program: &'a Program,
    members: [usize; AXES],
    full: Vec<bool>,
}

impl Program {
    /// The optimum, or `None` where rounding keeps the method from terminating.
    ///
    /// A pivot costs one pass over the unknowns. Everything is recomputed from the basis in each, so errors do not add
    /// up.
    pub(super) fn maximise(&self) -> Option<Optimum> {
        let n = self.values.len();
        let mut basis = Basis { program: self, members: [n, n + 1, n + 2], full: vec![false; n] };
        for pivot in 0..PIVOTS_MAX * (n + AXES) {
            let duals = basis.duals()?;
            let careful = pivot > QUICK_PIVOTS * (n + AXES);
            let Some(entering) = basis.entering(&duals, careful) else {
                return basis.optimum(duals);
            };
            basis.pivot(entering, careful)?;
        }
        None
    }

    /// Returns the unknown's use of each axis.
    pub(super) fn column(&self, unknown: usize) -> Axes {
        let slack = |axis| if axis == unknown - self.uses.len() { 1.0 } else { 0.0 };
        self.uses.get(unknown).copied().unwrap_or_else(|| core::array::from_fn(slack))
    }

    pub(super) fn value(&self, unknown: usize) -> f64 {
        self.values.get(unknown).copied().unwrap_or(0.0)
    }

    fn bound(&self, unknown: usize) -> f64 {
        self.bounds.get(unknown).copied().unwrap_or(f64::INFINITY)
    }
}

impl Basis<'_> {
    /// The prices at which every member's value is exactly the price of what it uses.
    fn duals(&self) -> Option<Axes> {
        linear::solve(self.columns(), self.members.map(|member| self.program.value(member)))
    }

    /// Returns the amount of each member that uses the budgets exactly.
    fn amounts(&self) -> Option<Axes> {
        let mut rest = self.program.budgets;
        for (unknown, _) in self.full.iter().enumerate().filter(|(_, full)| **full) {
            let uses = self.program.column(unknown);
            (0..AXES).for_each(|axis| rest[axis] -= uses[axis] * self.program.bounds[unknown]);
        }
        linear::solve(linear::transposed(&self.columns()), rest)
    }

    fn columns(&self) -> [Axes; AXES] {
        self.members.map(|member| self.program.column(member))
    }

    /// The unknown whose change gains most; in `careful` order the first that gains anything.
    fn entering(&self, duals: &Axes, careful: bool) -> Option<usize> {
        let highest = highest(duals);
        let all = 0..self.full.len() + AXES;
        let mut gains = all.filter(|unknown| !self.members.contains(unknown)).filter_map(|unknown| {
            let (value, uses) = (self.program.value(unknown), self.program.column(unknown));
            let price = dot(&uses, duals);
            let gain = if self.is_full(unknown) { price - value } else { value - price };
            let beside =
                if unknown < self.full.len() { value.max(dot(&uses, &duals.map(f64::abs))) } else { highest };
            (gain > GAIN_MIN * beside).then_some((unknown, gain))
        });
        let best = |best: (usize, f64), next: (usize, f64)| if next.1 > best.1 { next } else { best };
        let chosen = if careful { gains.next() } else { gains.reduce(best) };
        chosen.map(|(unknown, _)| unknown)
    }

    /// Changes one unknown until it, or a member, comes to a bound.
    fn pivot(&mut self, entering: usize, careful: bool) -> Option<()> {
        let toward = if self.is_full(entering) { -1.0 } else { 1.0 };
        let rates = linear::solve(linear::transposed(&self.columns()), self.program.column(entering))?;
        let amounts = self.amounts()?;
        // The shortest step; of equal ones that of the steepest member, or in careful order of the first unknown.
        let mut shortest: Option<(f64, usize, bool)> = None;
        for (place, rate) in rates.iter().map(|rate| rate * toward).enumerate() {
            if rate.abs() < MOVE_MIN {
                continue;
            }
            let fills = rate < 0.0;
            let room =
                if fills { self.program.bound(self.members[place]) - amounts[place] } else { amounts[place] };
            let step = room.max(0.0) / rate.abs();
            let sooner = shortest.is_none_or(|(other, rival, _)| {
                let prefer = if careful {
                    self.members[place] < self.members[rival]
                } else {
                    rate.abs() > rates[rival].abs()
                };
                step < other || step == other && prefer
            });
            if sooner && step.is_finite() {
                shortest = Some((step, place, fills));
            }
        }
        match shortest {
            Some((step, place, fills)) if step < self.program.bound(entering) => {
                let leaving = core::mem::replace(&mut self.members[place], entering);
                self.set_full(leaving, fills);
                self.set_full(entering, false);
            }
            _ => self.set_full(entering, toward > 0.0),
        }
        Some(())
    }

    fn optimum(&self, duals: Axes) -> Option<Optimum> {
        let program = self.program;
        let n = self.full.len();
        let mut amounts: Vec<f64> =
            (0..n).map(|unknown| if self.full[unknown] { program.bounds[unknown] } else { 0.0 }).collect();
        let mut tight = Vec::new();
        for (member, amount) in self.members.into_iter().zip(self.amounts()?) {
            let bound = program.bound(member);
            let whole = if member < n { bound } else { program.budgets[member - n] };
            let margin = TOLERANCE * whole + ROUNDING;
            if amount > margin && amount < bound - margin {
                tight.push(member);
            }
            if member < n && amount > ROUNDING * bound {
                amounts[member] = amount.min(bound);
            }
        }
        Some(Optimum { amounts, duals: without_rounding(duals), tight })
    }

    fn is_full(&self, unknown: usize) -> bool {
        self.full.get(unknown).copied().unwrap_or(false)
    }

    fn set_full(&mut self, unknown: usize, full: bool) {
        if let Some(is_full) = self.full.get_mut(unknown) {
            *is_full = full;
        }
    }
}

/// Zeroes duals that are rounding error next to the highest; else kinds of value zero would seem denied.
pub(super) fn without_rounding(duals: Axes) -> Axes {
    let highest = highest(&duals);
    duals.map(|dual| if dual.abs() <= ROUNDING * highest { 0.0 } else { dual })
}

pub(super) fn highest(duals: &Axes) -> f64 {
    duals.iter().fold(0.0, |high: f64, dual| high.max(dual.abs()))
}
