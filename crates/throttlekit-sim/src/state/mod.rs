//! Nodes, a store and a network as plain data, driven by [`Operation`]s through production code.
//!
//! Every decision is made by [`throttlekit_core::lease`]; a state only carries it. Two states with the same
//! future are equal and hash alike, so that a model checker can explore them.

mod clock;
mod exchange;
mod invariants;
mod ledger;
mod menu;
mod node;
mod seams;
mod spend;
mod store;

use core::time::Duration;

use throttlekit_core::lease::{Authority, HolderOptions, Term};
use throttlekit_core::rate::Limit;
use throttlekit_core::{Cost, Timestamp};

pub use clock::Clock;
pub use ledger::{Ledger, Lot, Pace, Tally, Violation};
pub use menu::Menu;
pub use node::{Held, Node, Waiter};
pub use spend::Answers;
pub use store::Store;

use crate::bugs::LeaseBug;
use crate::operation::{Message, Operation};

/// The constants of a scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// The initial limit that the store lends from.
    pub authority: Authority,
    /// The options of every holder.
    pub plan: HolderOptions,
    /// The initial batch size of each holder.
    pub batch: Cost,
    /// The number of nodes.
    pub nodes: usize,
    /// The store's clock.
    pub store_clock: Clock,
    /// The greatest cost of a request.
    pub cost_max: Cost,
    /// The maximum number of half-done decisions at one node.
    pub taken_max: usize,
    /// The maximum number of callers that wait at one node; others are rejected without a decision.
    pub waiters_max: usize,
    /// The number of attempts before a caller gives up.
    pub tries_max: u32,
    /// The replication mode, which determines what a failover can lose.
    pub replication: Replication,
    /// The time for which a replaced primary may go on lending.
    pub isolation: Duration,
    /// The seeded bug, if any.
    pub bug: Option<LeaseBug>,
}

/// The replication mode of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replication {
    /// No replica.
    None,
    /// Grants may be spent before the replica has them.
    Async,
    /// Grants are spent only once the replica has them.
    Wait,
    /// A new primary lends nothing from windows that its predecessor may have lent from.
    Fence,
}

impl Setup {
    /// Creates the simplest scenario: exact clocks, no replica, unit costs.
    pub fn new(authority: Authority, nodes: usize, batch: Cost) -> Self {
        let margin = throttlekit_core::lease::Margin::NONE;
        Self {
            authority,
            plan: HolderOptions {
                term: authority.term(),
                margin,
                lease_max: batch,
                share: 1,
                denial_max: Duration::MAX,
            },
            batch,
            nodes,
            store_clock: Clock::default(),
            cost_max: 1,
            taken_max: 1,
            waiters_max: 4,
            tries_max: u32::MAX,
            replication: Replication::None,
            isolation: Duration::ZERO,
            bug: None,
        }
    }

    #[inline(always)]
    pub(crate) fn has(&self, bug: LeaseBug) -> bool {
        self.bug == Some(bug)
    }

    /// Returns the maximum that one node may hold: its largest lease, or the cost of one request. Units with
    /// different expiries do not add up, so a rolling holder may need a whole cost beside what is not enough.
    pub fn held_max(&self) -> Cost {
        let most = self.plan.lease_max.max(self.cost_max);
        match self.plan.term {
            Term::Rolling(_) => most.saturating_add(self.cost_max - 1),
            Term::Window | Term::Carry => most,
        }
    }

    /// Returns the maximum that all nodes may hold, including the units that paused threads have taken.
    pub fn fleet_held_max(&self) -> Cost {
        let taken = self.cost_max.saturating_mul(self.taken_max as u64);
        self.held_max().saturating_add(taken).saturating_mul(self.nodes as u64)
    }
}

/// A cluster at one instant.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterState {
    setup: Setup,
    now: Timestamp,
    nodes: Vec<Node>,
    store: Store,
    /// Messages in flight, in [`Message::order`].
    in_flight: Vec<Message>,
    ledger: Ledger,
}

impl ClusterState {
    /// Creates the initial state: every node is up and holds nothing; all clocks except the store's are
    /// exact.
    pub fn new(setup: Setup) -> Self {
        let limit = setup.authority.limit();
        let pace = match limit {
            Limit::Window(_) => None,
            _ => Some(Pace::new(limit.units(), limit.period().as_nanos() as u64)),
        };
        Self {
            now: Timestamp::EPOCH,
            nodes: vec![Node::new(&setup, Clock::default()); setup.nodes],
            store: Store::new(&setup),
            in_flight: Vec::new(),
            ledger: Ledger::new(setup.nodes, pace),
            setup,
        }
    }

    /// Applies an operation with production code. Returns the message that was sent because of it.
    pub fn apply(&mut self, operation: Operation) -> Option<Message> {
        match operation {
            Operation::Ask { node, cost } => self.discard(|state| state.ask(node, cost, 1)),
            Operation::Take { node, cost } => self.discard(|state| state.take(node, cost)),
            Operation::Decide { node } => self.discard(|state| state.decide(node)),
            Operation::Request { node } => self.request(node),
            Operation::Deliver(message) => self.deliver(message),
            Operation::Lose(message) => self.discard(|state| state.remove(message)),
            Operation::Duplicate(message) => self.discard(|state| state.send(message)),
            Operation::Fail { node } => self.discard(|state| state.fail(node)),
            Operation::Low { node } => self.discard(|state| state.low(node)),
            Operation::LeaseReturn { node } => self.give_back(node),
            Operation::Evict { node } => self.discard(|state| state.evict(node)),
            Operation::Crash { node } => self.discard(|state| state.crash(node)),
            Operation::Restart { node } => self.discard(|state| state.restart(node)),
            Operation::Advance { by } => self.discard(|state| state.now = state.now + by),
            Operation::StepStore { by_ms } => self.discard(|state| state.store.step(by_ms, state.now)),
            Operation::Replicate => self.replicate(),
            Operation::Failover { with_old } => self.discard(|state| {
                state.store.fail_over(&state.setup, &mut state.ledger, with_old, state.now);
            }),
            Operation::Forget => {
                self.discard(|state| state.store.forget(&state.setup, &mut state.ledger, state.now))
            }
            Operation::SetLimit { units } => self.discard(|state| state.set_limit(units)),
        }
    }

    fn discard<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> Option<Message> {
        act(self);
        None
    }

    fn set_limit(&mut self, units: u64) {
        let Limit::Window(window) = self.store.authority.limit() else { return };
        let limit = Limit::fixed_window(units, window.period()).expect("a limit like the one before");
        self.store.set_limit(&self.setup, limit);
    }

    /// Returns the constants of the scenario.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Returns the true time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Sets the true time, which only moves forward.
    pub fn advance_to(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// Returns the nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns one node, to change its clock or batch.
    pub fn node_mut(&mut self, node: usize) -> &mut Node {
        &mut self.nodes[node]
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the messages in flight.
    pub fn in_flight(&self) -> &[Message] {
        &self.in_flight
    }

    /// Returns the ledger of admissions.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the ledger, to drop what no invariant will read again.
    pub fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// Returns the first invariant that was broken, if any.
    pub fn broken(&self) -> Option<&Violation> {
        self.ledger.broken.as_ref()
    }
}

impl Eq for ClusterState {}

/// The setup is the same in all compared states.
impl core::hash::Hash for ClusterState {
    fn hash<H: core::hash::Hasher>(&self, hasher: &mut H) {
        (self.now, &self.nodes, &self.store, &self.in_flight, &self.ledger).hash(hasher);
    }
}

#[cfg(test)]
mod tests;
