//! Messages in flight: delayed, lost, duplicated, reordered or partitioned.

use core::time::Duration;

use super::Cluster;
use super::queue::Event;
use crate::faults::Fault;
use crate::operation::{Message, Operation};

/// The factor by which a slow link is slower.
const SLOW: u64 = 40;

impl Cluster {
    /// Sends a message.
    pub(super) fn carry(&mut self, message: Message) {
        self.carry_one(message);
        if !self.is_quiet && self.dice.chance(self.scenario.network.doubled_percent) {
            self.fired.count(match message {
                Message::Request { .. } => Fault::RequestDuplicated,
                Message::Reply { .. } => Fault::ReplyDuplicated,
                Message::Return { .. } => Fault::ReturnDuplicated,
            });
            self.apply(Operation::Duplicate(message));
            self.carry_one(message);
        }
        if let Message::Request { node, .. } = message {
            self.nodes[node].requests += 1;
            let request = self.nodes[node].requests;
            let at = self.after(self.scenario.network.timeout);
            self.queue.push(at, Event::Deadline { node, request });
        }
    }

    fn carry_one(&mut self, message: Message) {
        let network = self.scenario.network;
        let mut delay = network.delay / 4 + self.dice.long_tailed(network.delay);
        if !self.is_quiet && self.dice.chance(network.slow_percent) {
            self.fired.count(Fault::SlowLink);
            delay *= self.dice.within(2, SLOW);
        }
        let at = self.after(delay);
        let due = &mut self.nodes[message.node()].due[usize::from(message.is_upward())];
        if at < *due {
            self.fired.count(Fault::Overtaken);
        }
        *due = (*due).max(at);
        self.queue.push(at, Event::Arrive(message));
    }

    /// Delivers a message, unless it was lost.
    pub(super) fn arrive(&mut self, message: Message) {
        if !self.is_quiet && self.is_cut(&message) {
            let around = &self.nodes[message.node()];
            let both = around.up_cut_until == around.down_cut_until;
            self.fired.count(match (both, message.is_upward()) {
                (true, _) => Fault::CutBothWays,
                (false, true) => Fault::CutUpward,
                (false, false) => Fault::CutDownward,
            });
            return self.apply(Operation::Lose(message));
        }
        if !self.is_quiet && self.dice.chance(self.scenario.network.lost_percent) {
            self.fired.count(match message {
                Message::Request { .. } => Fault::RequestLost,
                Message::Reply { .. } => Fault::ReplyLost,
                Message::Return { .. } => Fault::ReturnLost,
            });
            return self.apply(Operation::Lose(message));
        }
        self.deliver(message);
    }

    fn deliver(&mut self, message: Message) {
        let node = message.node();
        let Message::Reply { id, loan, .. } = message else {
            if self.state.store().clock.ppm != 0 {
                self.fired.count(Fault::StoreDrift);
            }
            return self.apply(Operation::Deliver(message));
        };
        let one = &self.state.nodes()[node];
        if one.is_up() && one.flight() != Some(id) {
            self.fired.count(Fault::LateReply);
        } else if one.is_up() && loan.granted > 0 {
            let clock = one.clock;
            if clock.ppm != 0 {
                self.fired.count(Fault::NodeDrift);
            }
            if clock.grain > 1 {
                self.fired.count(Fault::CoarseClock);
            }
        }
        self.count_gone(node);
        self.apply(Operation::Deliver(message));
        self.poll(node);
    }

    /// Counts callers that give up after their next retry.
    fn count_gone(&mut self, node: usize) {
        let tries_max = self.scenario.setup.tries_max;
        let gone =
            self.state.nodes()[node].waiters().iter().filter(|waiter| waiter.tries >= tries_max).count();
        (0..gone).for_each(|_| self.fired.count(Fault::CallerGone));
    }

    /// Fails a request whose deadline has passed, if it is still in flight.
    pub(super) fn deadline(&mut self, node: usize, request: u64) {
        if self.nodes[node].requests != request || self.state.nodes()[node].flight().is_none() {
            return;
        }
        self.fired.count(Fault::DeadlinePassed);
        self.count_gone(node);
        self.apply(Operation::Fail { node });
        // Waiting callers do not hammer a store that does not respond.
        let pause = self.scenario.network.delay + 1;
        let at = self.after(pause);
        self.queue.push(at, Event::Wake { node });
    }

    /// Schedules the replica's next write, some time after the one before it.
    pub(super) fn replicate_later(&mut self) {
        let lag = self.dice.long_tailed(self.scenario.network.replica_lag);
        let at = self.after(lag).max(self.replicates_at + Duration::from_nanos(1));
        self.replicates_at = at;
        self.queue.push(at, Event::Replicate);
    }
}
