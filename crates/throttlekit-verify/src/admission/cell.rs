//! The cells of the composition matrix: the axes of a policy, where their state is kept, and the axis that
//! denies.

use throttlekit::Axis;

/// The checks that can deny a call, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Denier {
    Concurrency,
    Price,
    Rate,
    Cost,
    Fairness,
}

impl Denier {
    /// All checks, in order.
    pub const ALL: [Self; 5] = [Self::Concurrency, Self::Price, Self::Rate, Self::Cost, Self::Fairness];

    /// Returns the axis, or `None` for the price.
    pub fn axis(self) -> Option<Axis> {
        match self {
            Self::Concurrency => Some(Axis::Concurrency),
            Self::Price => None,
            Self::Rate => Some(Axis::Rate),
            Self::Cost => Some(Axis::Cost),
            Self::Fairness => Some(Axis::Fairness),
        }
    }
}

/// The location of the limits of the rate and the cost axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Limits {
    InProcess,
    OneStore,
    TwoStores,
    LeasedRate,
    LeasedCost,
}

/// The place of each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// All in process, in a [`Policy`](throttlekit::Policy).
    Policy,
    /// In a [`SharedPolicy`](throttlekit::SharedPolicy).
    Shared {
        /// True if slots are held on a store.
        slots: bool,
        /// Rate and cost.
        limits: Limits,
        /// True if tenants share across processes.
        fair: bool,
    },
}

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    axes: [bool; 5],
    /// The check that denies.
    pub denier: Denier,
    /// True if the checks after it would deny as well.
    pub later_too: bool,
    /// The place of each axis.
    pub mix: Mix,
}

impl Cell {
    /// Returns `true` if the policy has this check.
    pub fn has(&self, denier: Denier) -> bool {
        self.axes[denier as usize]
    }

    /// Returns `true` if the policy has this check and it would deny.
    pub fn denies(&self, denier: Denier) -> bool {
        self.has(denier) && (denier == self.denier || self.later_too && denier > self.denier)
    }

    /// Returns `true` if any axis is on a store.
    pub fn is_shared(&self) -> bool {
        !matches!(
            self.mix,
            Mix::Policy | Mix::Shared { slots: false, limits: Limits::InProcess, fair: false }
        )
    }

    /// Returns `true` if one of its limits reads the system clock.
    pub fn reads_the_time(&self) -> bool {
        let limits = self.has(Denier::Rate) || self.has(Denier::Cost);
        limits && matches!(self.mix, Mix::Shared { limits: Limits::InProcess, .. })
    }

    /// Returns every cell: every subset of axes, every possible denier, alone and with all checks after it,
    /// in every mix of stores in which each axis that is marked as shared is present.
    pub fn all() -> Vec<Self> {
        let subsets = (1..32u8).map(|bits| Denier::ALL.map(|denier| bits >> (denier as u8) & 1 == 1));
        subsets.flat_map(Self::of).collect()
    }

    fn of(axes: [bool; 5]) -> impl Iterator<Item = Self> {
        let deniers = Denier::ALL.into_iter().filter(move |denier| axes[*denier as usize]);
        deniers.flat_map(move |denier| {
            let is_last = Denier::ALL.into_iter().all(|later| later <= denier || !axes[later as usize]);
            let alone = [false, true].into_iter().take(if is_last { 1 } else { 2 });
            alone.flat_map(move |later_too| {
                mixes(axes).into_iter().map(move |mix| Self { axes, denier, later_too, mix })
            })
        })
    }
}

fn mixes(axes: [bool; 5]) -> Vec<Mix> {
    let has = |denier: Denier| axes[denier as usize];
    let (rate, cost) = (has(Denier::Rate), has(Denier::Cost));
    let mut all = vec![Mix::Policy];
    for (limits, there) in [
        (Limits::InProcess, true),
        (Limits::OneStore, rate || cost),
        (Limits::TwoStores, rate && cost),
        (Limits::LeasedRate, rate),
        (Limits::LeasedCost, cost),
    ] {
        for (slots, fair) in [(false, false), (true, false), (false, true), (true, true)] {
            if there && (has(Denier::Concurrency) || !slots) && (has(Denier::Fairness) || !fair) {
                all.push(Mix::Shared { slots, limits, fair });
            }
        }
    }
    all
}
