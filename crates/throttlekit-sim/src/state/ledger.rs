//! Admissions by the store's own time, and the checks of each invariant.
//!
//! A window counts decisions: admissions decided while the store is in that window, by the key's own state
//! and the store's clock. The ledger is independent of the machine; it counts only outputs.

use core::fmt;
use core::hash::{Hash, Hasher};

use std::collections::VecDeque;

use throttlekit_core::Cost;

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Violation {
    /// The invariant's name in `docs/reference/guarantees.md`.
    pub invariant: &'static str,
    /// A description.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// One store window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tally {
    /// Its number.
    pub window: u64,
    /// Units admitted in it.
    pub admitted: Cost,
    /// The number of times it began: more than one if the store's clock was set back before anything was lent
    /// from it.
    pub begun: u64,
    /// The greatest limit in force while any of it was lent; zero if none was.
    pub limit: Cost,
    /// Units ever lent from it.
    pub lent: Cost,
    /// Units of it that nodes have returned, each counted when it leaves the node.
    pub given_back: Cost,
    /// Units lent from it whose record a failover lost. Gross: a unit that was returned and lent again counts
    /// twice, because the return may arrive a second time.
    pub lost: Cost,
}

/// Admissions against a pace: `admitted(Δ) ≤ burst + rate·Δ + more` for every interval at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The burst, which refills in `period`.
    pub burst: Cost,
    /// In nanoseconds.
    pub period: u64,
    admitted: i128,
    /// The minimum of `admitted·period − burst·time` before any admission so far.
    floor: i128,
    /// `admitted·period − burst·time − floor` after the last admission.
    above: i128,
}

impl Pace {
    /// Creates a pace without admissions.
    pub fn new(burst: Cost, period: u64) -> Self {
        Self { burst, period, admitted: 0, floor: i128::MAX, above: 0 }
    }

    /// Counts an admission at `time`. Returns the excess over the rate of the fullest interval that ends
    /// here, in units times period.
    pub fn admit(&mut self, units: Cost, time: u64) -> i128 {
        let (period, falls) = (i128::from(self.period), i128::from(self.burst) * i128::from(time));
        self.floor = self.floor.min(self.admitted * period - falls);
        self.admitted += i128::from(units);
        self.above = self.admitted * period - falls - self.floor;
        self.above
    }
}

/// Units lent to one node at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lot {
    /// The window it was lent from.
    pub window: u64,
    /// The expiry, in time that the store's clock has counted without steps forward.
    pub until: u64,
    /// Units not spent yet.
    pub units: Cost,
}

/// The record of admitted, lent and lost units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Windows in which anything was lent or admitted, in order.
    windows: Vec<Tally>,
    /// The window of the last admission.
    current: Option<u64>,
    /// Admissions, for limits that have no windows.
    pub pace: Option<Pace>,
    /// Loans, for limits that have no windows.
    pub lending: Option<Pace>,
    /// Units lent minus units credited, for each node. Never negative.
    balance: Vec<i128>,
    /// The loans of each node, oldest first.
    lots: Vec<VecDeque<Lot>>,
    /// Units lost by failovers, for limits that have no windows.
    pub lost: Cost,
    /// The first invariant that was broken.
    pub broken: Option<Violation>,
    /// Requests decided: each is one run of production code.
    pub decisions: u64,
    /// Requests that were allowed.
    pub allowed: u64,
}

impl Ledger {
    /// Creates an empty ledger.
    pub fn new(nodes: usize, pace: Option<Pace>) -> Self {
        let (balance, lots) = (vec![0; nodes], vec![VecDeque::new(); nodes]);
        Self {
            windows: Vec::new(),
            current: None,
            pace,
            lending: pace,
            balance,
            lots,
            lost: 0,
            broken: None,
            decisions: 0,
            allowed: 0,
        }
    }

    /// Returns all windows.
    pub fn windows(&self) -> &[Tally] {
        &self.windows
    }

    /// Returns the tally of the store's current window.
    pub fn enter(&mut self, window: u64) -> &mut Tally {
        let begins = self.current.replace(window) != Some(window);
        let tally = self.window(window);
        tally.begun += u64::from(begins);
        tally
    }

    /// Returns the tally of one window.
    pub fn window(&mut self, window: u64) -> &mut Tally {
        // Nearly always the newest.
        let after = self.windows.iter().rposition(|tally| tally.window <= window);
        let at = match after {
            Some(at) if self.windows[at].window == window => at,
            before => {
                let at = before.map_or(0, |at| at + 1);
                self.windows.insert(at, Tally { window, ..Tally::default() });
                at
            }
        };
        &mut self.windows[at]
    }

    /// Records a loan to a node.
    pub fn lend(&mut self, node: usize, lot: Lot) {
        if lot.units > 0 {
            self.balance[node] += i128::from(lot.units);
            self.lots[node].push_back(lot);
        }
    }

    /// Checks invariant `backed`: matches units spent at a node with its live loans, earliest expiry first.
    /// In whatever order a holder spends, this finds a match if it spends only live units.
    pub fn back(&mut self, node: usize, mut units: Cost, is_alive: impl Fn(&Lot) -> bool) {
        let lots = &mut self.lots[node];
        while let Some(lot) = lots.front_mut() {
            let spent = if is_alive(lot) { lot.units.min(units) } else { lot.units };
            units -= if is_alive(lot) { spent } else { 0 };
            lot.units -= spent;
            if lot.units > 0 {
                break;
            }
            lots.pop_front();
        }
        if units > 0 {
            self.break_invariant("backed", || {
                format!("node {node} spent {units} units that it was not lent or that had died")
            });
        }
    }

    /// Records units that a node put into its local lease. Checks invariant `conservation`: never more than
    /// it was lent.
    pub fn credit(&mut self, node: usize, units: Cost) {
        self.balance[node] -= i128::from(units);
        if self.balance[node] < 0 {
            self.break_invariant("conservation", || format!("node {node} holds units that nobody lent it"));
        }
    }

    /// Records that the store has forgotten all loans.
    pub fn lose_all(&mut self, limit: Cost) {
        self.windows.iter_mut().for_each(|tally| tally.lost = tally.lent);
        self.lost += limit;
    }

    /// Records a broken invariant, if it is the first.
    pub fn break_invariant(&mut self, invariant: &'static str, what: impl FnOnce() -> String) {
        if self.broken.is_none() {
            self.broken = Some(Violation { invariant, what: what() });
        }
    }

    /// Drops the windows before `window`, in which nothing can be admitted any more, and all plain counters.
    /// Used by models, where histories with the same future should be equal.
    pub fn forget_before(&mut self, window: u64) {
        self.windows.retain(|tally| tally.window >= window);
        (self.decisions, self.allowed) = (0, 0);
    }
}

/// Counters that no invariant reads do not distinguish histories.
impl Hash for Ledger {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.windows, self.current).hash(hasher);
        self.lost.hash(hasher);
        self.broken.hash(hasher);
        self.pace.map(|pace| pace.above).hash(hasher);
        self.lending.map(|pace| pace.above).hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_interval_is_found_whichever_it_is() {
        // Ten at once, ten a second.
        let mut pace = Pace::new(10, 1_000);
        assert_eq!(pace.admit(10, 0), 10 * 1_000);
        assert_eq!(pace.admit(10, 1_000), 10 * 1_000);
        assert_eq!(pace.admit(1, 1_000), 11 * 1_000);
        assert_eq!(pace.admit(5, 9_000), 5 * 1_000);
    }

    #[test]
    fn windows_are_kept_in_order() {
        let mut ledger = Ledger::new(1, None);
        for window in [5, 3, 9, 5, 4] {
            ledger.window(window).admitted += 1;
        }
        let kept: Vec<_> = ledger.windows().iter().map(|t| (t.window, t.admitted)).collect();
        assert_eq!(kept, [(3, 1), (4, 1), (5, 2), (9, 1)]);
    }
}
