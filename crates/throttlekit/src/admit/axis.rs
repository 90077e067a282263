//! The axes that a request must pass, and the decision of each.

use std::fmt;

use throttlekit_core::rate::Limit;
use throttlekit_core::{ALLOW_FULL, Decision, combine};

use super::LimitInfo;
use crate::LimitName;

/// An axis that a request must pass, in evaluation order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Axis {
    /// Number of concurrent calls.
    Concurrency,
    /// The price that the value of a call must reach. It denies calls and charges nothing.
    Price,
    /// Number of calls per unit of time.
    Rate,
    /// The amount used: most often tokens in a window.
    Cost,
    /// Share of a common budget, by weight.
    Fairness,
}

impl Axis {
    /// All axes, in order.
    pub const ALL: [Self; 5] = [Self::Concurrency, Self::Price, Self::Rate, Self::Cost, Self::Fairness];

    /// Returns the position in [`ALL`](Self::ALL).
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name used in metrics, traces and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Concurrency => "concurrency",
            Self::Price => "price",
            Self::Rate => "rate",
            Self::Cost => "cost",
            Self::Fairness => "fairness",
        }
    }

    /// Applies a limit of this axis to the call's key at `index`: 0 is the caller, the others follow. Default: 0.
    pub const fn by(self, index: usize) -> Dimension {
        Dimension { axis: self, key: index, weighted: !matches!(self, Self::Rate) }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// An axis, and the [`Call`](crate::Call) key that a limit on it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    pub(crate) axis: Axis,
    pub(crate) key: usize,
    /// If `true`, a call counts with its cost; otherwise as one.
    weighted: bool,
}

/// Applies to the caller's key.
impl From<Axis> for Dimension {
    fn from(axis: Axis) -> Self {
        axis.by(0)
    }
}

impl Dimension {
    /// Counts the declared cost of calls instead of the number of calls: for costs that are known in advance. It is not
    /// settled.
    pub const fn weighted(self) -> Self {
        Self { weighted: true, ..self }
    }

    /// Describes a limit of this dimension, for response headers. Permits settle the cost axis.
    pub(crate) fn describe(self, limit: &Limit) -> LimitInfo {
        let info = LimitInfo::of(self.axis, limit);
        if self.axis == Axis::Cost { info.refundable() } else { info }
    }

    /// Returns the cost of a call on this limit. A rate counts calls unless it is [weighted](Self::weighted); all other
    /// limits count the cost.
    #[inline]
    pub(crate) fn cost(self, estimate: u64) -> u64 {
        if self.weighted { estimate } else { 1 }
    }

    /// Checks whether this is the rate or the cost axis, whose limits count by key.
    pub(crate) fn is_counted(self) -> bool {
        matches!(self.axis, Axis::Rate | Axis::Cost)
    }
}

/// The decision of each axis in one call. `None` for an axis that the policy does not have, or that was not evaluated
/// because an earlier axis denied; always `None` for the price, which has no count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Axes {
    said: [Option<Decision>; 4],
    /// Name of the limit that denied.
    denied: Option<LimitName>,
}

impl Axes {
    /// Creates the decisions of all axes, in order.
    #[inline(always)]
    pub(crate) fn of(decisions: [Option<Decision>; 4]) -> Self {
        Self { said: decisions, denied: None }
    }

    /// Returns the decision of this axis.
    pub const fn get(&self, axis: Axis) -> Option<&Decision> {
        match axis {
            Axis::Price => None,
            counted => self.said[place(counted)].as_ref(),
        }
    }

    /// Returns the axis that denied. At most one did: later axes are not evaluated.
    pub fn denied_by(&self) -> Option<Axis> {
        let denied = |decision: &Option<Decision>| decision.is_some_and(|decision| !decision.allowed);
        self.said.iter().position(denied).map(|place| DECIDED[place])
    }

    /// Returns the name of the limit that denied, if it has one: of several, the one with the longest wait.
    pub fn limit_name(&self) -> Option<LimitName> {
        self.denied
    }

    /// Returns one decision for all axes: the denial if there is one, otherwise all of them combined by [`combine`].
    #[inline]
    pub fn decision(&self) -> Decision {
        let mut all = ALLOW_FULL;
        for said in self.said.iter().flatten() {
            if !said.allowed {
                return *said;
            }
            all = combine(all, *said);
        }
        all
    }

    /// Iterates over the evaluated axes and their decisions.
    pub fn iter(&self) -> impl Iterator<Item = (Axis, &Decision)> {
        DECIDED.into_iter().zip(&self.said).filter_map(|(axis, decision)| Some((axis, decision.as_ref()?)))
    }

    /// Like [`record`](Self::record), with the name of the limit.
    #[inline]
    pub(crate) fn record_named(&mut self, axis: Axis, decision: Decision, name: Option<LimitName>) {
        if !decision.allowed {
            self.name_denial(axis, &decision, name);
        }
        self.record(axis, decision);
    }

    /// Keeps the name of a limit that denies, unless another one of its axis denies for longer.
    fn name_denial(&mut self, axis: Axis, decision: &Decision, name: Option<LimitName>) {
        let longer = |before: &Decision| before.allowed || before.retry_after < decision.retry_after;
        if self.get(axis).is_none_or(longer) {
            self.denied = name;
        }
    }

    /// Sets the name of the limit that denied.
    pub(crate) fn set_limit_name(&mut self, name: Option<LimitName>) {
        self.denied = name;
    }

    /// Records the decision of an axis; several limits of one axis are combined. The price has none.
    #[inline]
    pub fn record(&mut self, axis: Axis, decision: Decision) {
        debug_assert_ne!(axis, Axis::Price, "the price has no decision of its own");
        let said = &mut self.said[place(axis)];
        *said = Some(match *said {
            None => decision,
            Some(before) if before.allowed == decision.allowed => combine(before, decision),
            Some(before) if before.allowed => decision,
            Some(before) => before,
        });
    }
}

/// The axes with a decision: all but the price.
const DECIDED: [Axis; 4] = [Axis::Concurrency, Axis::Rate, Axis::Cost, Axis::Fairness];

/// Returns the index of an axis among those with a decision.
#[inline]
const fn place(axis: Axis) -> usize {
    axis.index().saturating_sub(1)
}
