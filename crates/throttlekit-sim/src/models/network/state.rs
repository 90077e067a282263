//! The whole system at an instant: the store, the nodes, and the number that the invariant counts.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::lease::{Epoch, HolderRequest, Return, ReturnId, Want};
use throttlekit_core::rate::State;
use throttlekit_core::{Cost, Timestamp};

use super::menu::{TICK, is_fault};
use super::node::Done;
use super::store::{Keeping, Store};
use super::{Invariant, Network, Node};
use crate::operation::{Message, Operation};

/// The state of the network at an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkState {
    tick: u64,
    store: Store,
    /// Each node with a hash of its state. Most steps change one node; states share the others.
    nodes: Vec<(u64, Arc<Node>)>,
    admitted: u64,
    lost: u64,
    faults_left: u8,
    returns_left: u8,
    credited_twice: bool,
}

impl NetworkState {
    pub(super) fn new(network: &Network) -> Self {
        let nodes = network.clocks.iter().map(|clock| sealed(Node::new(network, *clock))).collect();
        let mut state = Self {
            tick: 0,
            store: Store::new(network.keeping),
            nodes,
            admitted: 0,
            lost: 0,
            faults_left: network.room.faults,
            returns_left: network.room.returns,
            credited_twice: false,
        };
        state.sort(network);
        state
    }

    /// Returns the number that the invariant counts: the units admitted in the store's current window. For a
    /// smooth rate, the largest excess over the pace among all intervals that end now: the debt of a bucket
    /// without a bottom, in ticks.
    pub fn admitted(&self) -> u64 {
        self.admitted
    }

    /// Returns the units of the current window that were lent without the store's knowledge.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the number of ticks that have passed.
    pub fn tick(&self) -> u64 {
        self.tick
    }

    pub(super) fn credited_twice(&self) -> bool {
        self.credited_twice
    }

    pub(super) fn nobody_waits_for_nothing(&self) -> bool {
        !self.nodes.iter().any(|(_, node)| node.waits_for_nothing())
    }

    pub(super) fn node(&self, place: usize) -> &Node {
        &self.nodes[place].1
    }

    pub(super) fn faults_left(&self) -> u8 {
        self.faults_left
    }

    pub(super) fn returns_left(&self) -> u8 {
        self.returns_left
    }

    pub(super) fn lags(&self) -> bool {
        self.store.lags() || self.nodes.iter().any(|(_, node)| node.has_unsafe_replies())
    }

    pub(super) fn can_fail(&self) -> bool {
        self.store.can_fail()
    }

    /// Returns the state after an operation, or `None` if it is not possible.
    pub(super) fn after(&self, network: &Network, operation: Operation) -> Option<Self> {
        let mut state = self.clone();
        state.faults_left -= u8::from(is_fault(&operation));
        state.apply(network, operation)?;
        state.sort(network);
        Some(state)
    }

    fn apply(&mut self, network: &Network, operation: Operation) -> Option<()> {
        match operation {
            Operation::Advance { by } => self.pass(network, by),
            Operation::Replicate => self.replicate(),
            Operation::Failover { .. } => self.fail_over(network),
            Operation::Ask { node, cost } => self.at(network, node, |node, now| node.ask(network, cost, now)),
            Operation::Take { node, cost } => {
                self.at(network, node, |node, now| node.sleep(network, cost, now))
            }
            Operation::Decide { node } => self.at(network, node, |node, now| node.wake(network, now)),
            Operation::Low { node } => self.at(network, node, |node, now| node.run_low(network, now)),
            Operation::Fail { node } => self.at(network, node, |node, now| node.give_up(network, now)),
            Operation::LeaseReturn { node } => self.give_back(network, node),
            Operation::Crash { node } => self.at(network, node, |node, _| node.crash(network)),
            Operation::Deliver(Message::Request { node, request }) => self.answer(network, node, request),
            Operation::Deliver(Message::Reply { node, id, loan }) => {
                self.at(network, node, |node, now| node.arrive(network, id, loan, now))
            }
            Operation::Deliver(message @ Message::Return { id, back, .. }) => {
                self.take_back(network, message, id, back)
            }
            Operation::Lose(message) => self.at(network, message.node(), |node, _| node.remove(message)),
            Operation::Duplicate(message) => {
                self.at(network, message.node(), |node, _| node.double(network, message))
            }
            _ => None,
        }
    }

    /// Applies a step of one node at the reading of its clock.
    fn at(
        &mut self,
        network: &Network,
        place: usize,
        step: impl FnOnce(&mut Node, Timestamp) -> Option<Done>,
    ) -> Option<()> {
        let mut node = Node::clone(&self.nodes[place].1);
        let now = node.clock.read(self.tick);
        let done = step(&mut node, now)?;
        self.nodes[place] = sealed(node);
        self.credited_twice |= done.credited_twice;
        self.admitted += match network.invariant {
            Invariant::Rolling => done.admitted * network.window,
            _ => done.admitted,
        };
        Some(())
    }

    fn pass(&mut self, network: &Network, by: Duration) -> Option<()> {
        let before = self.epoch(network);
        self.tick += u64::from(by == TICK);
        if network.invariant == Invariant::Rolling {
            self.admitted = self.admitted.saturating_sub(1);
        } else if self.epoch(network) != before {
            (self.admitted, self.lost) = (0, 0);
        }
        Some(())
    }

    /// Returns the number of the store's current window.
    pub fn window(&self, network: &Network) -> u64 {
        self.epoch(network).0
    }

    fn epoch(&self, network: &Network) -> Epoch {
        let any = Want { wants: 1, least: 1, share: 1 };
        network.authority().look(&State::Fresh, any, self.store_now(network)).epoch
    }

    fn store_now(&self, network: &Network) -> Timestamp {
        network.store_clock.read(self.tick)
    }

    fn answer(&mut self, network: &Network, place: usize, request: HolderRequest) -> Option<()> {
        let now = self.store_now(network);
        let loan = self.store.lend(&network.authority(), request.want, now);
        let safe = network.keeping != Keeping::Wait || !self.can_fail();
        let mut node = Node::clone(&self.nodes[place].1);
        node.put_reply(network, request, loan, safe)?;
        self.nodes[place] = sealed(node);
        Some(())
    }

    fn give_back(&mut self, network: &Network, place: usize) -> Option<()> {
        let id = ReturnId(u128::from(self.returns_left));
        self.returns_left -= 1;
        self.at(network, place, |node, now| node.give_back(network, id, now))
    }

    fn take_back(&mut self, network: &Network, message: Message, id: ReturnId, back: Return) -> Option<()> {
        let now = self.store_now(network);
        let back = network.seam.taken_back(back, self.epoch(network));
        self.store.take_back(&network.authority(), id, back, network.seam, now);
        self.at(network, message.node(), |node, _| node.remove(message))
    }

    fn replicate(&mut self) -> Option<()> {
        self.store.replicate();
        self.release_replies(false);
        Some(())
    }

    fn fail_over(&mut self, network: &Network) -> Option<()> {
        let now = self.store_now(network);
        let lost = self.store.fail_over(&network.authority(), network.keeping, now);
        // The other durability modes promise that lost units do not count.
        self.lost +=
            if network.keeping == Keeping::Async && !network.seam.forgives_nothing() { lost } else { 0 };
        self.release_replies(true);
        Some(())
    }

    fn release_replies(&mut self, lost: bool) {
        for (mark, node) in &mut self.nodes {
            if node.has_unsafe_replies() {
                Arc::make_mut(node).release_replies(lost);
                *mark = node.mark();
            }
        }
    }

    fn sort(&mut self, network: &Network) {
        if network.sorted {
            self.nodes.sort_by_key(|(mark, _)| *mark);
        }
    }

    /// Returns the units admitted so far in a window, or above the pace in whole units.
    pub fn admitted_units(&self, network: &Network) -> Cost {
        if network.invariant == Invariant::Rolling { self.admitted / network.window } else { self.admitted }
    }
}

fn sealed(node: Node) -> (u64, Arc<Node>) {
    (node.mark(), Arc::new(node))
}

impl Hash for NetworkState {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.tick, &self.store, self.admitted, self.lost).hash(state);
        (self.faults_left, self.returns_left, self.credited_twice).hash(state);
        self.nodes.iter().for_each(|(mark, _)| mark.hash(state));
    }
}
