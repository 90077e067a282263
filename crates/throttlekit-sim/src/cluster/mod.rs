//! A deterministic simulation of a whole cluster under faults: the same seed gives the same run, byte for
//! byte.
//!
//! Time is virtual, randomness comes from the seed, and every decision is production code. A run that breaks
//! an invariant can be replayed from its seed.

mod calls;
mod fault_injection;
mod network;
mod queue;
mod scenario;
mod trace;

use throttlekit_core::Timestamp;

use crate::bugs::LeaseBug;
use crate::dice::Dice;
use crate::faults::{Fault, Fired};
use crate::operation::{Message, Operation};
use crate::state::{ClusterState, Violation};
use queue::{Event, Queue};
use scenario::Scenario;
use trace::Trace;

/// Upper bound on the events of a run. A run with more has a machine that never comes to rest.
const EVENTS_MAX: u64 = 2_000_000;

/// The result of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The invariant that was checked, besides those that always hold.
    pub invariant: &'static str,
    /// The first invariant that was broken.
    pub broken: Option<Violation>,
    /// Requests decided by production code.
    pub decisions: u64,
    /// Requests that were allowed.
    pub allowed: u64,
    /// Store windows in which anything was admitted; each was checked.
    pub windows: u64,
    /// The number of times each fault fired.
    pub fired: Fired,
    /// A hash of all events, in order.
    pub trace_hash: u64,
}

/// Runs the cluster of this seed, with a seeded bug or none.
pub fn run(seed: u64, bug: Option<LeaseBug>) -> Report {
    let mut cluster = Cluster::new(seed, bug, Trace::default());
    cluster.run();
    cluster.report()
}

/// Replays a run and reports every event, one line each.
pub fn replay(seed: u64, bug: Option<LeaseBug>, tell: &mut dyn FnMut(&str)) -> Report {
    let mut cluster = Cluster::new(seed, bug, Trace::telling());
    cluster.trace.line(|| format!("seed {seed}: {:?}", cluster.scenario));
    cluster.run();
    cluster.trace.lines().iter().for_each(|line| tell(line));
    cluster.report()
}

struct Cluster {
    scenario: Scenario,
    state: ClusterState,
    dice: Dice,
    queue: Queue,
    trace: Trace,
    fired: Fired,
    nodes: Vec<Around>,
    store_paused_until: Timestamp,
    replica_stalled_until: Timestamp,
    /// The time of the last replication. Writes arrive in order.
    replicates_at: Timestamp,
    /// Current demand of the callers, in percent.
    hunger: u64,
    /// True once no faults and no new callers are scheduled.
    is_quiet: bool,
    failed_over_at: Option<Timestamp>,
}

/// Simulation state of a node that is not part of the node itself.
#[derive(Clone, Debug, Default)]
struct Around {
    paused_until: Timestamp,
    paused_with_work: bool,
    up_cut_until: Timestamp,
    down_cut_until: Timestamp,
    /// A counter that distinguishes requests for their deadlines.
    requests: u64,
    /// The arrival time of this node's last message, in each direction.
    due: [Timestamp; 2],
}

impl Cluster {
    fn new(seed: u64, bug: Option<LeaseBug>, trace: Trace) -> Self {
        let mut dice = Dice::new(seed);
        let scenario = Scenario::draw(&mut dice, bug);
        let mut state = ClusterState::new(scenario.setup);
        let mut queue = Queue::default();
        for node in 0..scenario.setup.nodes {
            state.node_mut(node).clock = scenario.node_clock(&mut dice, Timestamp::EPOCH);
            queue.push(Timestamp::from_nanos(dice.below(scenario.burst_every)), Event::Burst { node });
        }
        queue.push(Timestamp::from_nanos(scenario.window), Event::Fault);
        queue.push(Timestamp::EPOCH, Event::Mood);
        Self {
            nodes: vec![Around::default(); scenario.setup.nodes],
            state,
            dice,
            queue,
            trace,
            fired: Fired::default(),
            store_paused_until: Timestamp::EPOCH,
            replica_stalled_until: Timestamp::EPOCH,
            replicates_at: Timestamp::EPOCH,
            hunger: 100,
            is_quiet: false,
            failed_over_at: None,
            scenario,
        }
    }

    /// Runs until no events are left or an invariant is broken.
    fn run(&mut self) {
        let mut events = 0;
        while let Some((at, event)) = self.queue.pop() {
            self.state.advance_to(at);
            self.is_quiet = at.as_nanos() >= self.scenario.ends;
            events += 1;
            if events > EVENTS_MAX {
                self.state
                    .ledger_mut()
                    .break_invariant("no-lost-waiter", || "the cluster never comes to rest".into());
            }
            self.handle(event);
            if self.state.broken().is_some() {
                return;
            }
        }
        for node in 0..self.nodes.len() {
            if !self.state.nodes()[node].waiters().is_empty() {
                self.state
                    .ledger_mut()
                    .break_invariant("no-lost-waiter", || format!("someone waits at node {node} for ever"));
            }
        }
    }

    fn handle(&mut self, event: Event) {
        if let Some(later) = self.not_now(&event) {
            return self.queue.push(later, event);
        }
        match event {
            Event::Burst { node } => self.burst(node),
            Event::Herd { node } => self.ask_some(node),
            Event::Wake { node } => self.poll(node),
            Event::Decide { node } => self.apply(Operation::Decide { node }),
            Event::Arrive(message) => self.arrive(message),
            Event::Deadline { node, request } => self.deadline(node, request),
            Event::Replicate => self.apply(Operation::Replicate),
            Event::Restart { node } => self.apply(Operation::Restart { node }),
            Event::Fault => self.inject_fault(),
            Event::LaggedFailover => self.fail_over_lagged(),
            Event::Mood => self.mood(),
        }
    }

    /// Returns the end of the pause if the node or store that handles this event is paused.
    fn not_now(&mut self, event: &Event) -> Option<Timestamp> {
        let now = self.state.now();
        let until = match *event {
            Event::Arrive(message) if message.is_upward() => {
                if now < self.store_paused_until {
                    self.fired.count(Fault::StorePaused);
                }
                self.store_paused_until
            }
            Event::Replicate if now < self.replica_stalled_until => self.replica_stalled_until,
            Event::Replicate => self.store_paused_until,
            Event::Burst { node }
            | Event::Herd { node }
            | Event::Wake { node }
            | Event::Decide { node }
            | Event::Deadline { node, .. } => self.paused(node),
            Event::Arrive(message) => self.paused(message.node()),
            Event::Restart { .. } | Event::Fault | Event::LaggedFailover | Event::Mood => Timestamp::EPOCH,
        };
        (now < until).then_some(until)
    }

    fn paused(&mut self, node: usize) -> Timestamp {
        let around = &mut self.nodes[node];
        if self.state.now() < around.paused_until && !around.paused_with_work {
            around.paused_with_work = true;
            self.fired.count(Fault::NodePaused);
        }
        around.paused_until
    }

    /// Applies the operation, traces it, and sends the message that results.
    fn apply(&mut self, operation: Operation) {
        let now = self.state.now();
        self.trace.note(now, &operation);
        let behind = self.state.store().behind();
        let sent = self.state.apply(operation);
        if self.state.store().behind() > behind {
            self.replicate_later();
        }
        if let Some(message) = sent {
            self.carry(message);
        }
    }

    /// Changes the demand with the windows: light demand leaves units over, heavy demand wants them.
    fn mood(&mut self) {
        self.hunger = self.dice.pick(&[10, 30, 100, 200, 400]);
        if !self.is_quiet {
            let next = self.state.now() + core::time::Duration::from_nanos(self.scenario.window);
            self.queue.push(next, Event::Mood);
        }
    }

    fn report(self) -> Report {
        let ledger = self.state.ledger();
        Report {
            invariant: self.state.invariant(),
            broken: ledger.broken.clone(),
            decisions: ledger.decisions,
            allowed: ledger.allowed,
            windows: ledger.windows().iter().filter(|tally| tally.admitted > 0).count() as u64,
            fired: self.fired,
            trace_hash: self.trace.hash(),
        }
    }

    fn after(&self, nanos: u64) -> Timestamp {
        self.state.now() + core::time::Duration::from_nanos(nanos)
    }

    /// Returns `true` if the link of this message is partitioned.
    fn is_cut(&self, message: &Message) -> bool {
        let around = &self.nodes[message.node()];
        let until = if message.is_upward() { around.up_cut_until } else { around.down_cut_until };
        self.state.now() < until
    }
}

#[cfg(test)]
mod tests;
