//! The axes that a request must pass, and the decision of each.

use std::fmt;

use throttlekit_core::rate::Limit;
use throttlekit_core::{ALLOW_FULL, Cost, Decision, combine};

use super::LimitInfo;

/// An axis that a request must pass, in evaluation order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Number of concurrent calls.
    Concurrency,
    /// Number of calls per unit of time.
    Rate,
    /// Amount of use: most often tokens in a window.
    Cost,
    /// Share of a common budget, by weight.
    Fairness,
}

impl Axis {
    /// All axes, in order.
    pub const ALL: [Self; 4] = [Self::Concurrency, Self::Rate, Self::Cost, Self::Fairness];

    /// Returns the name used in metrics, traces and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Concurrency => "concurrency",
            Self::Rate => "rate",
            Self::Cost => "cost",
            Self::Fairness => "fairness",
        }
    }
}

/// An axis, and the [`Call`](crate::Call) key that a limit on it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    pub(crate) axis: Axis,
    pub(crate) key: usize,
    /// If `true`, a call counts with its cost; otherwise as one.
    pub(crate) weighed: bool,
}

impl Axis {
    /// Applies a limit of this axis to the call's key at this index: 0 is the caller, the others follow.
    pub const fn of(self, key: usize) -> Dimension {
        Dimension { axis: self, key, weighed: !matches!(self, Self::Rate) }
    }
}

/// Applies to the caller's key.
impl From<Axis> for Dimension {
    fn from(axis: Axis) -> Self {
        axis.of(0)
    }
}

impl Dimension {
    /// Counts the declared cost of calls instead of the number of calls: for costs that are known in advance. It is not
    /// settled.
    pub const fn weighed(self) -> Self {
        Self { weighed: true, ..self }
    }

    /// Describes a limit of this dimension, for response headers. Permits settle the cost axis.
    pub(crate) fn describe(self, limit: &Limit) -> LimitInfo {
        let info = LimitInfo::of(self.axis, limit);
        if self.axis == Axis::Cost { info.refundable() } else { info }
    }

    /// Returns the cost of a call on this limit. A rate counts calls unless it is [weighed](Self::weighed); all other
    /// limits count the cost.
    #[inline]
    pub(crate) fn cost(self, estimate: Cost) -> Cost {
        if self.weighed { estimate } else { 1 }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// The decision of each axis in one call. `None` for an axis that the policy does not have, or that was not evaluated
/// because an earlier axis denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Axes([Option<Decision>; 4]);

impl Axes {
    /// Returns the decision of this axis.
    pub const fn get(&self, axis: Axis) -> Option<&Decision> {
        self.0[axis as usize].as_ref()
    }

    /// Returns the axis that denied. At most one did: later axes are not evaluated.
    pub fn binding_axis(&self) -> Option<Axis> {
        Axis::ALL.into_iter().find(|&axis| self.get(axis).is_some_and(|decision| !decision.allowed))
    }

    /// Returns one decision for all axes: the denial if there is one, otherwise all of them combined by [`combine`].
    #[inline]
    pub fn decision(&self) -> Decision {
        let mut all = ALLOW_FULL;
        for said in self.0.iter().flatten() {
            if !said.allowed {
                return *said;
            }
            all = combine(all, *said);
        }
        all
    }

    /// Iterates over the evaluated axes and their decisions.
    pub fn iter(&self) -> impl Iterator<Item = (Axis, &Decision)> {
        Axis::ALL.into_iter().filter_map(|axis| Some((axis, self.get(axis)?)))
    }

    /// Records the decision of an axis; several limits of one axis are combined.
    #[inline]
    pub fn note(&mut self, axis: Axis, decision: Decision) {
        let said = &mut self.0[axis as usize];
        *said = Some(match *said {
            None => decision,
            Some(before) if before.allowed == decision.allowed => combine(before, decision),
            Some(before) if before.allowed => decision,
            Some(before) => before,
        });
    }
}
