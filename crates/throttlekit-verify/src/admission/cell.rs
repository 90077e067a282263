//! The cells of the composition matrix: which axes a policy has, where they are kept, and which of them denies.

use throttlekit::Axis;

/// What can deny a call, in the order in which it is asked.
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
    /// All of them, in order.
    pub const ALL: [Self; 5] = [Self::Concurrency, Self::Price, Self::Rate, Self::Cost, Self::Fairness];

    /// The axis that is named; the price is none.
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

/// Where the limits of the rate and the cost axis are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Limits {
    InProcess,
    OneStore,
    TwoStores,
    LeasedRate,
    LeasedCost,
}

/// Where each axis is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// All in process, in a [`Policy`](throttlekit::Policy).
    Policy,
    /// In a [`SharedPolicy`](throttlekit::SharedPolicy).
    Shared {
        /// Whether slots are held on a store.
        slots: bool,
        /// Rate and cost.
        limits: Limits,
        /// Whether tenants share across processes.
        fair: bool,
    },
}

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    axes: [bool; 5],
    /// Who denies.
    pub denier: Denier,
    /// Whether those after it would deny as well.
    pub later_too: bool,
    /// Where everything is.
    pub mix: Mix,
}

impl Cell {
    /// Whether the policy has it.
    pub fn has(&self, denier: Denier) -> bool {
        self.axes[denier as usize]
    }

    /// Whether the policy has it, and it would deny.
    pub fn denies(&self, denier: Denier) -> bool {
        self.has(denier) && (denier == self.denier || self.later_too && denier > self.denier)
    }

    /// Whether anything of it is on a store.
    pub fn is_shared(&self) -> bool {
        !matches!(
            self.mix,
            Mix::Policy | Mix::Shared { slots: false, limits: Limits::InProcess, fair: false }
        )
    }

    /// Whether a limit of it reads the system's clock.
    pub fn reads_the_time(&self) -> bool {
        let limits = self.has(Denier::Rate) || self.has(Denier::Cost);
        limits && matches!(self.mix, Mix::Shared { limits: Limits::InProcess, .. })
    }

    /// Every cell: every subset of axes, whoever of them denies, alone and with all after it, in every mix of stores in
    /// which each axis that is said to be shared is there.
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
