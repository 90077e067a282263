//! Shows why units of a smooth rate expire and are never returned.
//!
//! Three nodes lease whole bursts of 5 from a limit that refills at 1/s; leased units live for 10 s. The
//! model counts the units that could be spent at once: those that the nodes hold and those that the limit
//! would still admit. By `lease-rolling` that is at most `burst + min(rate·h, N·B)` = 15. A driver that takes
//! units back lets them be lent again for another 10 s, although time has refilled the bucket meanwhile, and
//! 20 can be spent.

use std::time::Duration;

use stateright::{Model, Property};
use throttlekit_core::lease::{
    Account, Authority, Holder, HolderOptions, LocalLease, Margin, PlainWord, Term, Want,
};
use throttlekit_core::rate::{Limit, Mark, Rate, Settle};
use throttlekit_core::{Cost, Timestamp};

const NODES: usize = 3;
const BURST: Cost = 5;
const HOLD: Duration = Duration::from_secs(10);
const SECONDS_MAX: u64 = 20;
/// `burst + min(rate·h, N·B)`.
pub const BOUND: Cost = 15;
/// The same at whole seconds: units leased ten seconds ago have expired, so only the last nine seconds count.
pub const BOUND_AT_SECONDS: Cost = 14;
/// The units that can be spent when units are returned: everything that three nodes hold, and a full bucket.
pub const WITH_RETURNS: Cost = 20;

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct RollingReturn {
    /// If true, units are taken back.
    pub returns: bool,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A second passes.
    Second,
    /// A node that holds nothing leases a burst.
    Lease(usize),
    /// A node returns its units, and the limit takes them.
    LeaseReturn(usize),
}

/// All nodes at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fleet {
    second: u64,
    account: Account,
    holders: Vec<Holder>,
    local_leases: Vec<(Cost, Timestamp)>,
}

fn authority() -> Authority {
    let limit = Limit::gcra(Rate::per_second(1).burst(BURST)).expect("a rate above zero");
    Authority::new(limit, Term::Rolling(HOLD)).expect("smooth rates can be lent for a time")
}

impl Fleet {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.second * 1_000)
    }

    fn held(&self, node: usize) -> Cost {
        let (units, until) = self.local_leases[node];
        if self.now() < until { units } else { 0 }
    }

    fn left(&self) -> Cost {
        authority().look(&self.account.state, Want { wants: BURST, least: 1, share: 1 }, self.now()).granted
    }

    /// Returns the number of seconds that have passed.
    pub fn second(&self) -> u64 {
        self.second
    }

    /// Returns the units that could be spent at once.
    pub fn spendable(&self) -> Cost {
        self.left() + (0..NODES).map(|node| self.held(node)).sum::<Cost>()
    }

    fn lease(&mut self, node: usize) -> Option<()> {
        let (now, local_lease) = (self.now(), LocalLease::<PlainWord>::new());
        let holder = &mut self.holders[node];
        holder.handle_low(now);
        let request = holder.poll_request(&local_lease, 0, BURST, now)?;
        let loan = self.account.lend(&authority(), request.want, now);
        holder.handle_reply(&local_lease, 0, loan, now);
        self.local_leases[node] = (local_lease.units(), local_lease.until());
        Some(())
    }

    /// Bypasses the machine: a holder never returns units of a rolling lease, and an account never accepts
    /// them.
    fn give_back(&mut self, node: usize) {
        let (now, units) = (self.now(), self.held(node));
        self.local_leases[node] = (0, Timestamp::EPOCH);
        authority().limit().refund(&mut self.account.state, Mark(now.as_nanos()), units, now);
    }
}

impl Model for RollingReturn {
    type State = Fleet;
    type Action = Move;

    fn init_states(&self) -> Vec<Fleet> {
        let plan = HolderOptions {
            term: Term::Rolling(HOLD),
            margin: Margin::NONE,
            lease_max: BURST,
            share: 1,
            denial_max: Duration::MAX,
        };
        let (holders, local_leases) = (vec![Holder::new(plan); NODES], vec![(0, Timestamp::EPOCH); NODES]);
        vec![Fleet { second: 0, account: Account::default(), holders, local_leases }]
    }

    fn actions(&self, fleet: &Fleet, moves: &mut Vec<Move>) {
        if fleet.second < SECONDS_MAX {
            moves.push(Move::Second);
        }
        for node in 0..NODES {
            if fleet.held(node) == 0 && fleet.left() == BURST {
                moves.push(Move::Lease(node));
            }
            if self.returns && fleet.held(node) > 0 {
                moves.push(Move::LeaseReturn(node));
            }
        }
    }

    fn next_state(&self, last: &Fleet, action: Move) -> Option<Fleet> {
        let mut fleet = last.clone();
        match action {
            Move::Second => fleet.second += 1,
            Move::Lease(node) => fleet.lease(node)?,
            Move::LeaseReturn(node) => fleet.give_back(node),
        }
        Some(fleet)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("within the bound", |model: &Self, fleet: &Fleet| {
                fleet.spendable() <= if model.returns { WITH_RETURNS - 1 } else { BOUND_AT_SECONDS }
            }),
            Property::sometimes("the bound is reached", |_, fleet: &Fleet| {
                fleet.spendable() == BOUND_AT_SECONDS
            }),
        ]
    }
}
