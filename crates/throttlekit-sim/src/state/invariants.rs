//! What each invariant allows, from its setup and from the faults so far.

use throttlekit_core::Cost;
use throttlekit_core::lease::Term;

use super::store::Lent;
use super::{ClusterState, Lot, Replication, Tally};

impl ClusterState {
    /// Units of callers admitted now, in the window in which the store is.
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

    /// Invariant `grants`: no more is lent than the limit has, whatever came back. A unit that a node gave back may be
    /// lent again, once; one that a failover forgot too.
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
            // In wait mode a grant leaves the store later than it was made, by more or less time.
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

    /// A node gives units back, and can no longer spend them.
    pub(super) fn note_given_back(&mut self, node: usize, window: u64, units: Cost) {
        if self.ledger.pace.is_none() {
            self.ledger.window(window).given_back += units;
        }
        self.check_backed(node, units);
    }

    /// Invariant `backed`: every unit spent was lent to this node, and is alive by the store's own time: its window is
    /// not over, or as long has not passed as it was lent for. What a store clock set forward has cut short is exempt.
    fn check_backed(&mut self, node: usize, units: Cost) {
        let (ran, window) = (self.store.clock.ran(self.now), self.store.window(self.now));
        let coupled = self.setup.plan.term == Term::Window;
        let exempt = coupled && self.store.is_tainted(window);
        self.ledger.back(node, units, |lot| exempt || ran < lot.until || (coupled && lot.window == window));
    }

    /// The most that may be admitted in a store window.
    ///
    /// * No more is lent from a window than the greatest limit that was in force while it was lent from.
    /// * `lease-carry`: what the fleet held when the window began comes on top, each time it began.
    /// * After the store's clock was set forward, what was lent before lives on in windows that began early: as much as
    ///   was lent from the windows cut short, and as much as the fleet can hold.
    /// * `failover`: what was lent and then forgotten is lent again, unless grants wait or are fenced.
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

    /// Guarantee `lease-rolling`: `burst + rate·Δ + min(rate·h, N·H)` in any interval of the store's time; `N·H` alone
    /// if leases have no hold time. A clock set forward refills, and adds as much to the time that units seem to live.
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

    /// The invariant in force.
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

    /// A node's local lease gained units. Invariants `conservation` and `held`.
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

    /// Invariant `no-lost-waiter`: whoever waits has a request in flight, or one to be sent.
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
