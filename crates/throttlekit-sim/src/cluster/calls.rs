//! Callers, and the driver of each node.

use throttlekit_core::Cost;

use super::Cluster;
use super::queue::Event;
use super::scenario::Batches;
use crate::faults::Fault;
use crate::operation::Operation;

impl Cluster {
    /// Sends a burst of requests to a node and schedules the next one.
    pub(super) fn burst(&mut self, node: usize) {
        if self.is_quiet {
            return;
        }
        self.ask_some(node);
        let wait = self.scenario.burst_every / 4 + self.dice.long_tailed(self.scenario.burst_every);
        // About half of them near the start of a window, where most bugs show.
        let wait = if self.dice.chance(30) { self.until_boundary() } else { wait };
        let at = self.after(wait);
        self.queue.push(at, Event::Burst { node });
    }

    pub(super) fn ask_some(&mut self, node: usize) {
        if !self.state.nodes()[node].is_up() {
            return;
        }
        let most = (self.scenario.burst_max * self.hunger / 100).max(2);
        let (cost, times) = (self.cost(), self.dice.within(1, most));
        // The node has been idle for a while: it returns its units.
        if self.state.nodes()[node].held().units > 0 && self.dice.chance(40) {
            self.apply(Operation::LeaseReturn { node });
        }
        let now = self.state.now();
        if self.scenario.has(Fault::ThreadPaused) && self.dice.chance(30) {
            self.pause_a_thread(node, cost);
        }
        self.trace.note(now, &(node, cost, times));
        let answers = self.state.ask(node, cost, times);
        self.trace.note(now, &(answers.allowed, answers.denied, answers.wait));
        self.check_local_lease(node, answers.wait > 0);
        self.poll(node);
    }

    fn cost(&mut self) -> Cost {
        let costs = self.scenario.costs;
        if costs.rare_max > costs.usual_max && self.dice.chance(15) {
            return self.dice.within(1, costs.rare_max);
        }
        self.dice.within(1, costs.usual_max)
    }

    /// Takes units now and reads the clock later, often in the next window.
    fn pause_a_thread(&mut self, node: usize, cost: Cost) {
        let before = self.state.nodes()[node].taken();
        self.apply(Operation::Take { node, cost });
        if self.state.nodes()[node].taken() > before {
            self.fired.count(Fault::ThreadPaused);
            let sleep = self.dice.within(1, self.scenario.window);
            let at = self.after(sleep);
            self.queue.push(at, Event::Decide { node });
        }
    }

    /// Requests units ahead of need and adapts the batch size.
    fn check_local_lease(&mut self, node: usize, ran_out: bool) {
        let held = self.state.nodes()[node].held().units;
        if held <= self.scenario.low_water {
            self.apply(Operation::Low { node });
        }
        let batch = self.state.nodes()[node].batch;
        let lease_max = self.scenario.setup.plan.lease_max;
        let next = match self.scenario.batches {
            Batches::Arbitrary => self.dice.within(0, lease_max),
            Batches::Adaptive if ran_out => batch.saturating_mul(2).min(lease_max),
            Batches::Adaptive if held > batch / 2 => batch / 2,
            Batches::Fixed | Batches::Adaptive => batch,
            Batches::Absurd => self.dice.pick(&[0, 1, 1 << 41, u64::MAX]),
        };
        self.state.node_mut(node).batch = next;
    }

    /// Sends a request if the holder wants one.
    pub(super) fn poll(&mut self, node: usize) {
        let had = self.nodes[node].requests;
        self.apply(Operation::Request { node });
        let sent = self.nodes[node].requests > had;
        let batch = self.state.nodes()[node].batch;
        if sent && (batch == 0 || batch >= 1 << 41) {
            self.fired.count(Fault::AbsurdBatch);
        }
    }

    /// Returns the true time until the store's next window, with a little jitter.
    fn until_boundary(&mut self) -> u64 {
        let window = self.scenario.window;
        let store = self.state.store().read(self.state.now()).as_nanos();
        let left = u128::from(window - store % window);
        let ppm = i128::from(self.state.store().clock.ppm);
        let exact = (left * 1_000_000).div_ceil((1_000_000 + ppm) as u128) as u64;
        let near = self.dice.long_tailed(window / 50);
        if self.dice.chance(30) { exact.saturating_sub(near) } else { exact + near }
    }

    /// Sends requests to every node at the instant a window begins.
    pub(super) fn herd(&mut self) {
        self.fired.count(Fault::BoundaryHerd);
        let at = self.until_boundary();
        let at = self.after(at);
        for node in 0..self.nodes.len() {
            self.queue.push(at, Event::Herd { node });
        }
    }
}
