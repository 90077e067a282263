//! The first implementation's own models: a grant and the first spend from it are one step.
//!
//! There are three steps: *serve* from the units of a node, *lease* a whole batch when it holds nothing and
//! serve the first of it, *roll* into the next window. They run the production [`Authority`], [`Holder`] and
//! [`LocalLease`]. A state is the same tuple as in those models, `(units left upstream, units of each node,
//! admitted in this window)`, so the counts can be compared.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use stateright::{Model, Property};
use throttlekit_core::lease::{
    Account, Authority, Holder, HolderOptions, HolderStep, LocalLease, Margin, PlainWord, Term, Want,
};
use throttlekit_core::rate::Limit;
use throttlekit_core::{Cost, Timestamp};

/// The length of a window. Any length works, since only *roll* moves time.
const WINDOW_MS: u64 = 10;

/// Nodes that lease in one step.
#[derive(Clone, Debug)]
pub struct OneStep {
    /// The number of nodes.
    pub nodes: usize,
    /// Units per window.
    pub limit: Cost,
    /// The units that a node leases at once.
    pub batch: Cost,
    /// [`Term::Carry`] or [`Term::Window`].
    pub term: Term,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A node serves from its units.
    Serve(usize),
    /// A node that holds nothing leases a batch and serves the first of it.
    Lease(usize),
    /// The next window begins.
    Roll,
}

/// All nodes at an instant. Two states are equal if they hold the same units and have admitted the same
/// number.
#[derive(Clone, Debug)]
pub struct Fleet {
    account: Account,
    holders: Vec<Holder>,
    /// The units in each local lease, and their expiry.
    local_leases: Vec<(Cost, Timestamp)>,
    now: Timestamp,
    left: Cost,
    admitted: Cost,
}

impl OneStep {
    /// Creates a model whose units carry over into later windows.
    pub fn carry(nodes: usize, limit: Cost, batch: Cost) -> Self {
        Self { nodes, limit, batch, term: Term::Carry }
    }

    /// Creates a model whose units expire with their window.
    pub fn coupled(nodes: usize, limit: Cost, batch: Cost) -> Self {
        Self { term: Term::Window, ..Self::carry(nodes, limit, batch) }
    }

    /// Returns the maximum admitted in one window: `L + N·(B−1)`, or `L` when units expire with it.
    pub fn bound(&self) -> Cost {
        match self.term {
            Term::Carry => self.limit + self.nodes as u64 * (self.batch - 1),
            _ => self.limit,
        }
    }

    fn authority(&self) -> Authority {
        let window =
            Limit::fixed_window(self.limit, Duration::from_millis(WINDOW_MS)).expect("a limit above zero");
        Authority::new(window, self.term).expect("windows can be lent")
    }

    /// Returns the units that the authority would lend now.
    fn left(&self, fleet: &Fleet) -> Cost {
        let all = Want { wants: self.limit, least: 1, share: 1 };
        self.authority().look(&fleet.account.state, all, fleet.now).granted
    }

    fn lease(&self, fleet: &mut Fleet, node: usize, local_lease: &LocalLease<PlainWord>) {
        let (authority, now) = (self.authority(), fleet.now);
        let holder = &mut fleet.holders[node];
        assert_eq!(holder.handle_ask(local_lease, 1, || now), HolderStep::Wait);
        let request = holder.poll_request(local_lease, 0, self.batch, now).expect("a caller waits");
        let loan = fleet.account.lend(&authority, request.want, now);
        holder.handle_reply(local_lease, 0, loan, now);
    }
}

impl Fleet {
    /// Returns the units that a node could spend now.
    fn held(&self, node: usize) -> Cost {
        let (units, until) = self.local_leases[node];
        if self.now < until { units } else { 0 }
    }

    fn key(&self) -> (Cost, Vec<Cost>, Cost) {
        (self.left, (0..self.local_leases.len()).map(|node| self.held(node)).collect(), self.admitted)
    }
}

impl PartialEq for Fleet {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Hash for Fleet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl Model for OneStep {
    type State = Fleet;
    type Action = Move;

    fn init_states(&self) -> Vec<Fleet> {
        let plan = HolderOptions {
            term: self.term,
            margin: Margin::NONE,
            lease_max: self.batch,
            share: 1,
            denial_max: Duration::MAX,
        };
        vec![Fleet {
            account: Account::default(),
            holders: vec![Holder::new(plan); self.nodes],
            local_leases: vec![(0, Timestamp::EPOCH); self.nodes],
            now: Timestamp::EPOCH,
            left: self.limit,
            admitted: 0,
        }]
    }

    fn actions(&self, fleet: &Fleet, moves: &mut Vec<Move>) {
        for node in 0..self.nodes {
            if fleet.held(node) > 0 {
                moves.push(Move::Serve(node));
            } else if fleet.left >= self.batch {
                moves.push(Move::Lease(node));
            }
            // Once for each node, as those models did, so that the number of steps compares too.
            moves.push(Move::Roll);
        }
    }

    fn next_state(&self, last: &Fleet, action: Move) -> Option<Fleet> {
        let mut fleet = last.clone();
        match action {
            Move::Roll => {
                fleet.now = fleet.now + Duration::from_millis(WINDOW_MS);
                fleet.admitted = 0;
            }
            Move::Serve(node) | Move::Lease(node) => {
                let local_lease = thaw(fleet.local_leases[node]);
                if matches!(action, Move::Lease(_)) {
                    self.lease(&mut fleet, node, &local_lease);
                }
                let now = fleet.now;
                let turn = fleet.holders[node].handle_ask(&local_lease, 1, || now);
                assert!(matches!(turn, HolderStep::Spent { .. }), "{turn:?}");
                fleet.local_leases[node] = (local_lease.units(), local_lease.until());
                fleet.admitted += 1;
            }
        }
        fleet.left = self.left(&fleet);
        Some(fleet)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("within the bound", |model: &Self, fleet: &Fleet| {
                fleet.admitted <= model.bound()
            }),
            Property::sometimes("the bound is reached", |model: &Self, fleet: &Fleet| {
                fleet.admitted == model.bound()
            }),
        ]
    }
}

/// Restores a local lease. States keep only its content, since a local lease can be changed through a shared
/// reference.
fn thaw((units, until): (Cost, Timestamp)) -> LocalLease<PlainWord> {
    let local_lease = LocalLease::new();
    local_lease.fill(units, until, false);
    local_lease
}

#[cfg(test)]
mod tests {
    use stateright::Checker;

    use super::*;

    /// Returns transitions, states and depth. The search terminates, stays within the bound and reaches it.
    fn explore(model: OneStep) -> (usize, usize, usize) {
        let checker = model.checker().spawn_bfs().join();
        checker.assert_properties();
        (checker.state_count(), checker.unique_state_count(), checker.max_depth())
    }

    /// The figures that TLC printed for the first implementation, and its own twin for the last.
    #[test]
    fn lease_carry_in_one_step_explores_what_the_first_implementation_did() {
        assert_eq!(OneStep::carry(2, 4, 2).bound(), 6);
        assert_eq!(explore(OneStep::carry(2, 4, 2)), (113, 31, 10));
        assert_eq!(OneStep::carry(3, 6, 3).bound(), 12);
        assert_eq!(explore(OneStep::carry(3, 6, 3)), (2_458, 441, 18));
        assert_eq!(OneStep::carry(5, 10, 2).bound(), 15);
        assert_eq!(explore(OneStep::carry(5, 10, 2)).1, 992);
    }

    #[test]
    fn lease_coupled_in_one_step_explores_what_the_first_implementation_did() {
        for ((nodes, limit, batch), states) in [((2, 4, 2), 8), ((3, 6, 3), 27), ((5, 10, 2), 112)] {
            assert_eq!(explore(OneStep::coupled(nodes, limit, batch)).1, states);
        }
    }

    #[test]
    fn lease_coupled_in_one_step_admits_exactly_the_limit_for_any_number_of_nodes() {
        let fleets =
            [(1, 8, 2), (2, 8, 2), (4, 8, 2), (8, 8, 2), (4, 12, 4), (1, 8, 1), (4, 8, 1), (8, 8, 1)];
        let states = fleets.map(|(nodes, limit, batch)| explore(OneStep::coupled(nodes, limit, batch)).1);
        assert_eq!(states, [9, 16, 48, 303, 256, 9, 9, 9]);
    }
}
