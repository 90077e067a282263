//! The axes a request has to clear, and what each said.

use std::fmt;

use throttlekit_core::{ALLOW_FULL, Cost, Decision, combine};

/// What a request has to clear, in the order in which it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// How many at a time.
    Concurrency,
    /// How often.
    Rate,
    /// How much: tokens in a window, most often.
    Cost,
    /// How much of what all share, by weight.
    Fairness,
}

impl Axis {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Concurrency, Self::Rate, Self::Cost, Self::Fairness];

    /// Its name in metrics, traces and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Concurrency => "concurrency",
            Self::Rate => "rate",
            Self::Cost => "cost",
            Self::Fairness => "fairness",
        }
    }
}

/// An axis, and by which of a [`Call`](super::Call)'s keys a limit of it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    pub(crate) axis: Axis,
    pub(crate) key: usize,
    /// Whether a call counts as what it costs; else as one.
    pub(crate) weighed: bool,
}

impl Axis {
    /// A limit of this axis that goes by the call's key at this place: 0 is who asks, the others follow.
    pub const fn of(self, key: usize) -> Dimension {
        Dimension { axis: self, key, weighed: !matches!(self, Self::Rate) }
    }
}

/// By who asks.
impl From<Axis> for Dimension {
    fn from(axis: Axis) -> Self {
        axis.of(0)
    }
}

impl Dimension {
    /// A rate that counts what calls are said to cost, and not calls: for costs that are known before. It is not settled.
    pub const fn weighed(self) -> Self {
        Self { weighed: true, ..self }
    }

    /// What a call costs on this limit: a rate counts calls unless it is [weighed](Self::weighed), everything else what
    /// they cost.
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

/// What each axis said in one call. Nothing for one that the policy does not have, or that was not asked because one
/// before it had denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Axes([Option<Decision>; 4]);

impl Axes {
    /// What this axis said.
    pub const fn get(&self, axis: Axis) -> Option<&Decision> {
        self.0[axis as usize].as_ref()
    }

    /// The axis that denied. At most one did: those after it were not asked.
    pub fn binding_axis(&self) -> Option<Axis> {
        Axis::ALL.into_iter().find(|&axis| self.get(axis).is_some_and(|decision| !decision.allowed))
    }

    /// One answer for all: of a denial the denier's own, else the fold of all by [`combine`].
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

    /// Every axis that was asked, with what it said.
    pub fn iter(&self) -> impl Iterator<Item = (Axis, &Decision)> {
        Axis::ALL.into_iter().filter_map(|axis| Some((axis, self.get(axis)?)))
    }

    /// Notes what an axis said; of several limits of one axis, all of them together.
    #[inline]
    pub(crate) fn note(&mut self, axis: Axis, decision: Decision) {
        let said = &mut self.0[axis as usize];
        *said = Some(match *said {
            None => decision,
            Some(before) if before.allowed == decision.allowed => combine(before, decision),
            Some(before) if before.allowed => decision,
            Some(before) => before,
        });
    }
}
