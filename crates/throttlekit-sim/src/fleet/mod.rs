//! A whole fleet under faults, the same every time: one seed is one run, byte for byte.
//!
//! Time is virtual, chance comes from the seed, and every decision is production code. A run that breaks a law can be
//! told again by its seed.

mod asks;
mod mishaps;
mod network;
mod queue;
mod scenario;
mod trace;

use throttlekit_core::Timestamp;

use crate::bugs::LeaseBug;
use crate::dice::Dice;
use crate::faults::{Fault, Fired};
use crate::operation::{Message, Operation};
use crate::world::{Violation, World};
use queue::{Event, Queue};
use scenario::Scenario;
use trace::Trace;

/// No run has more events than this; one that does is a machine that never comes to rest.
const EVENTS_MAX: u64 = 2_000_000;

/// What came of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The law that the run was judged by, besides those that always hold.
    pub law: &'static str,
    /// The first law that was broken.
    pub broken: Option<Violation>,
    /// Asks that were answered by production code.
    pub decisions: u64,
    /// Asks that were allowed.
    pub allowed: u64,
    /// Store windows in which anything was admitted, each judged.
    pub windows: u64,
    /// How often each fault fired.
    pub fired: Fired,
    /// Of everything that happened, in order.
    pub trace_hash: u64,
}

/// Runs the fleet of this seed, with a seeded bug or none.
pub fn run(seed: u64, bug: Option<LeaseBug>) -> Report {
    let mut fleet = Fleet::new(seed, bug, Trace::default());
    fleet.run();
    fleet.report()
}

/// Runs it again and tells everything that happens, a line each.
pub fn replay(seed: u64, bug: Option<LeaseBug>, tell: &mut dyn FnMut(&str)) -> Report {
    let mut fleet = Fleet::new(seed, bug, Trace::telling());
    fleet.trace.line(|| format!("seed {seed}: {:?}", fleet.scenario));
    fleet.run();
    fleet.trace.lines().iter().for_each(|line| tell(line));
    fleet.report()
}

struct Fleet {
    scenario: Scenario,
    world: World,
    dice: Dice,
    queue: Queue,
    trace: Trace,
    fired: Fired,
    nodes: Vec<Around>,
    store_paused_until: Timestamp,
    replica_stalled_until: Timestamp,
    /// When the last replication was due: writes arrive in order.
    replicates_at: Timestamp,
    /// How hungry callers are in this stretch of time, in percent.
    hunger: u64,
    /// Whether faults and new callers are over.
    is_quiet: bool,
    failed_over_at: Option<Timestamp>,
}

/// What surrounds a node and is not part of it.
#[derive(Clone, Debug, Default)]
struct Around {
    paused_until: Timestamp,
    paused_with_work: bool,
    up_cut_until: Timestamp,
    down_cut_until: Timestamp,
    /// Tells requests apart for their deadlines.
    requests: u64,
    /// When the last message of this node is due, each way.
    due: [Timestamp; 2],
}

impl Fleet {
    fn new(seed: u64, bug: Option<LeaseBug>, trace: Trace) -> Self {
        let mut dice = Dice::new(seed);
        let scenario = Scenario::draw(&mut dice, bug);
        let mut world = World::new(scenario.setup);
        let mut queue = Queue::default();
        for node in 0..scenario.setup.nodes {
            world.node_mut(node).clock = scenario.node_clock(&mut dice, Timestamp::EPOCH);
            queue.push(Timestamp::from_nanos(dice.below(scenario.burst_every)), Event::Burst { node });
        }
        queue.push(Timestamp::from_nanos(scenario.window), Event::Mishap);
        queue.push(Timestamp::EPOCH, Event::Mood);
        Self {
            nodes: vec![Around::default(); scenario.setup.nodes],
            world,
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

    /// Until nothing is left to happen, or a law is broken.
    fn run(&mut self) {
        let mut events = 0;
        while let Some((at, event)) = self.queue.pop() {
            self.world.advance_to(at);
            self.is_quiet = at.as_nanos() >= self.scenario.ends;
            events += 1;
            if events > EVENTS_MAX {
                self.world
                    .ledger_mut()
                    .break_law("no-lost-waiter", || "the fleet never comes to rest".into());
            }
            self.handle(event);
            if self.world.broken().is_some() {
                return;
            }
        }
        for node in 0..self.nodes.len() {
            if !self.world.nodes()[node].waiters().is_empty() {
                self.world
                    .ledger_mut()
                    .break_law("no-lost-waiter", || format!("someone waits at node {node} for ever"));
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
            Event::Mishap => self.mishap(),
            Event::LaggedFailover => self.fail_over_lagged(),
            Event::Mood => self.mood(),
        }
    }

    /// Until when whoever would handle this is stopped, if it is.
    fn not_now(&mut self, event: &Event) -> Option<Timestamp> {
        let now = self.world.now();
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
            Event::Restart { .. } | Event::Mishap | Event::LaggedFailover | Event::Mood => Timestamp::EPOCH,
        };
        (now < until).then_some(until)
    }

    fn paused(&mut self, node: usize) -> Timestamp {
        let around = &mut self.nodes[node];
        if self.world.now() < around.paused_until && !around.paused_with_work {
            around.paused_with_work = true;
            self.fired.count(Fault::NodePaused);
        }
        around.paused_until
    }

    /// Does it, tells of it, and sends on its way what comes of it.
    fn apply(&mut self, operation: Operation) {
        let now = self.world.now();
        self.trace.note(now, &operation);
        let behind = self.world.store().behind();
        let sent = self.world.apply(operation);
        if self.world.store().behind() > behind {
            self.replicate_later();
        }
        if let Some(message) = sent {
            self.carry(message);
        }
    }

    /// How hungry callers are changes with the windows: light ones leave units over, heavy ones want them.
    fn mood(&mut self) {
        self.hunger = self.dice.pick(&[10, 30, 100, 200, 400]);
        if !self.is_quiet {
            let next = self.world.now() + core::time::Duration::from_nanos(self.scenario.window);
            self.queue.push(next, Event::Mood);
        }
    }

    fn report(self) -> Report {
        let ledger = self.world.ledger();
        Report {
            law: self.world.law(),
            broken: ledger.broken.clone(),
            decisions: ledger.decisions,
            allowed: ledger.allowed,
            windows: ledger.windows().iter().filter(|tally| tally.admitted > 0).count() as u64,
            fired: self.fired,
            trace_hash: self.trace.hash(),
        }
    }

    fn after(&self, nanos: u64) -> Timestamp {
        self.world.now() + core::time::Duration::from_nanos(nanos)
    }

    /// Whether what is under way to or from this node is cut off.
    fn is_cut(&self, message: &Message) -> bool {
        let around = &self.nodes[message.node()];
        let until = if message.is_upward() { around.up_cut_until } else { around.down_cut_until };
        self.world.now() < until
    }
}

#[cfg(test)]
mod tests;
