//! The bounds of each invariant, from its setup and from the faults so far.

use throttlekit_core::Cost;
use throttlekit_core::lease::Term;

use super::store::Lent;
use super::{ClusterState, Lot, Replication, Tally};

impl ClusterState {
    /// Counts units admitted now, in the store's current window.
    pub(super) fn admit(&mut self, node: usize, units: Cost, callers: u64) {
        self.ledger.allowed += callers;
        if units == 0 {
            return;
        }
        self.check_backed(node, units);
        if self.ledger.pace.is_some() {
            return self.admit_paced(units);
        }
        let window = self.store.window(self.now);
        let tally = self.ledger.enter(window);
        tally.admitted += units;
        let tally = *tally;
        let allowed = self.window_bound(&tally);
        if tally.admitted > allowed {
            let Tally { admitted, limit, .. } = tally;
            self.ledger.break_invariant(self.invariant(), || {
                format!("{admitted} admitted in window {window}, where {allowed} may be (limit {limit})")
            });
        }
    }

    /// Checks invariant `grants`: the store lends at most the limit, whatever is returned. A unit that a node
    /// returned may be lent again, once; so may one that a failover forgot.
    pub(super) fn note_lent(&mut self, lent: &Lent) {
        let Lent { node, loan, until, limit, by_old, .. } = *lent;
        if loan.granted == 0 {
            return;
        }
        self.ledger.lend(node, Lot { window: loan.epoch.0, until, units: loan.granted });
        let lost = if by_old && self.setup.replication == Replication::Async { loan.granted } else { 0 };
        let (came, planned) = (self.store.came(self.now), self.setup.replication == Replication::Wait);
        if let Some(pace) = &mut self.ledger.lending {
            self.ledger.lost += lost;
            let above = pace.admit(loan.granted, came);
            // In wait mode a grant leaves the store some time after it was made.
            let most = i128::from(pace.burst + self.ledger.lost) * i128::from(pace.period);
            if above > most && !planned {
                self.ledger.break_invariant("grants", || "more was lent than the rate allows".into());
            }
            return;
        }
        let tally = self.ledger.window(loan.epoch.0);
        tally.limit = tally.limit.max(limit);
        tally.lent += loan.granted;
        tally.lost += lost;
        let Tally { window, lent, given_back, limit, lost, .. } = *tally;
        if lent > limit + given_back + lost {
            self.ledger.break_invariant("grants", || {
                format!(
                    "{lent} lent from window {window}, {given_back} given back, {lost} lost, limit {limit}"
                )
            });
        }
    }

    /// Records that a node returned units and can no longer spend them.
    pub(super) fn note_given_back(&mut self, node: usize, window: u64, units: Cost) {
        if self.ledger.pace.is_none() {
            self.ledger.window(window).given_back += units;
        }
        self.check_backed(node, units);
    }

    /// Checks invariant `backed`: every unit spent was lent to this node and is alive by the store's own
    /// time: its window is not over, or the time that it was lent for has not passed. Units cut short by a
    /// store clock set forward are exempt.
    fn check_backed(&mut self, node: usize, units: Cost) {
        let (ran, window) = (self.store.clock.ran(self.now), self.store.window(self.now));
        let coupled = self.setup.plan.term == Term::Window;
        let exempt = coupled && self.store.is_tainted(window);
        self.ledger.back(node, units, |lot| exempt || ran < lot.until || (coupled && lot.window == window));
    }

    /// Returns the maximum that may be admitted in a store window.
    ///
    /// * A window lends at most the greatest limit in force while it was lent from.
    /// * `lease-carry`: the units that all nodes held when the window began come on top, each time it began.
    /// * After the store's clock was set forward, units lent before live on in windows that began early: at
    ///   most those lent from the windows cut short, and at most those that all nodes can hold.
    /// * `failover`: units that were lent and then forgotten are lent again, unless grants wait or are
    ///   fenced.
    pub fn window_bound(&self, tally: &Tally) -> Cost {
        let fleet = self.setup.fleet_held_max();
        let carries = self.setup.plan.term == Term::Carry;
        let carried = if carries { fleet.saturating_mul(tally.begun) } else { 0 };
        let cut_short = self.ledger.windows().iter().map(|other| other.limit).max().unwrap_or(0);
        let early = if self.store.is_tainted(tally.window) {
            fleet.min(cut_short.saturating_mul(self.store.forward_steps))
        } else {
            0
        };
        let lost = if self.setup.replication == Replication::Async { tally.lost } else { 0 };
        tally.limit.saturating_add(carried.max(early)).saturating_add(lost)
    }

    /// Checks guarantee `lease-rolling`: `burst + rate·Δ + min(rate·h, N·H)` in any interval of the store's
    /// time; `N·H` alone if leases have no hold time. A clock set forward refills, and adds the same to the
    /// apparent life of units.
    fn admit_paced(&mut self, units: Cost) {
        let came = self.store.came(self.now);
        let (fleet, lost) = (i128::from(self.setup.fleet_held_max()), i128::from(self.ledger.lost));
        let pace = self.ledger.pace.as_mut().expect("admissions against a pace");
        let (burst, period) = (i128::from(pace.burst), i128::from(pace.period));
        let above = pace.admit(units, came);
        let held = match self.setup.plan.term {
            Term::Rolling(hold) => {
                let lives = hold.as_nanos() as i128 + i128::from(self.store.forward);
                (burst * lives).min(fleet.saturating_mul(period))
            }
            Term::Window | Term::Carry => fleet.saturating_mul(period),
        };
        let allowed = (burst + lost).saturating_mul(period).saturating_add(held);
        if above > allowed {
            let (over, bound) = (above / period, allowed / period);
            self.ledger.break_invariant(self.invariant(), || {
                format!("{over} units above the rate in some interval that ends now, where {bound} may be")
            });
        }
    }

    /// Returns the invariant in force.
    pub fn invariant(&self) -> &'static str {
        match (self.setup.replication, self.setup.plan.term) {
            (Replication::None, Term::Window) => "lease-coupled",
            (Replication::None, Term::Rolling(_)) => "lease-rolling",
            (Replication::None, Term::Carry) => "lease-carry",
            (Replication::Async, _) => "failover-async",
            (Replication::Wait, _) => "failover-wait",
            (Replication::Fence, _) => "failover-fence",
        }
    }

    /// Records that a node's local lease gained units. Checks invariants `conservation` and `held`.
    pub(super) fn note_gain(&mut self, node: usize, units: Cost) {
        if units == 0 {
            return;
        }
        self.ledger.credit(node, units);
        let (held, most) = (self.nodes[node].held.units, self.setup.held_max());
        if held > most {
            self.ledger.break_invariant("held", || format!("node {node} holds {held}, where {most} may be"));
        }
    }

    /// Checks invariant `no-lost-waiter`: a waiting caller has a request in flight, or one to be sent.
    pub(super) fn check_waiters(&mut self, node: usize) {
        let one = &self.nodes[node];
        if !one.is_up || one.waiters.is_empty() || one.holder.is_asking() {
            return;
        }
        let at = one.clock.read(self.now);
        if one.holder.clone().poll_request(&one.local_lease(), 0, one.batch, at).is_none() {
            self.ledger
                .break_invariant("no-lost-waiter", || format!("someone waits at node {node} for nothing"));
        }
    }
}
