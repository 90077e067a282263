//! Faults of nodes, of the store and of clocks.

use core::time::Duration;

use super::Cluster;
use super::queue::Event;
use crate::bugs::LeaseBug;
use crate::faults::Fault;
use crate::operation::Operation;
use crate::state::Replication;

impl Cluster {
    /// Injects one fault and schedules the next.
    pub(super) fn inject_fault(&mut self) {
        if self.is_quiet {
            return;
        }
        let wait = self.dice.long_tailed(self.scenario.fault_every) + 1;
        let at = self.after(wait);
        self.queue.push(at, Event::Fault);
        if self.scenario.faults.is_empty() {
            return;
        }
        let fault = self.dice.pick(&self.scenario.faults);
        let node = self.dice.below(self.nodes.len() as u64) as usize;
        match fault {
            Fault::CutBothWays | Fault::CutUpward | Fault::CutDownward => self.cut(fault, node),
            Fault::NodePaused => self.pause(node),
            Fault::NodeCrashed | Fault::NodeRebooted => self.crash(fault, node),
            Fault::KeyEvicted => self.evict(node),
            Fault::StorePaused => self.store_paused_until = self.some_time(4),
            Fault::StoreSetBack | Fault::StoreSetForward => self.step_store(fault),
            Fault::ReplicaStalled => {
                self.fired.count(fault);
                self.replica_stalled_until = self.some_time(2);
            }
            Fault::FailoverInSync | Fault::FailoverWithLag | Fault::SplitBrain | Fault::FailoverAgain => {
                self.fail_over(fault);
            }
            Fault::StoreForgets => self.forget(),
            Fault::LimitLowered | Fault::LimitRaised => self.set_limit(fault),
            Fault::BoundaryHerd => self.herd(),
            _ => {}
        }
    }

    /// Returns an instant at most `1/part` of a window from now.
    fn some_time(&mut self, part: u64) -> throttlekit_core::Timestamp {
        let wait = self.dice.within(1, self.scenario.window / part);
        self.after(wait)
    }

    fn cut(&mut self, fault: Fault, node: usize) {
        let until = self.some_time(1);
        let around = &mut self.nodes[node];
        if fault != Fault::CutDownward {
            around.up_cut_until = until;
        }
        if fault != Fault::CutUpward {
            around.down_cut_until = until;
        }
    }

    fn pause(&mut self, node: usize) {
        let (now, until) = (self.state.now(), self.some_time(1));
        if now < self.nodes[node].paused_until {
            return;
        }
        self.nodes[node].paused_until = until;
        self.nodes[node].paused_with_work = false;
        if self.scenario.setup.bug == Some(LeaseBug::ClockStopsWhileSuspended) {
            self.state.node_mut(node).clock.offset -= until.since(now).as_nanos() as i128;
        }
    }

    fn crash(&mut self, fault: Fault, node: usize) {
        let one = &self.state.nodes()[node];
        if !one.is_up() {
            return;
        }
        if one.held().units > 0 || one.is_asking() || !one.waiters().is_empty() {
            self.fired.count(Fault::NodeCrashed);
        }
        self.apply(Operation::Crash { node });
        if fault == Fault::NodeRebooted {
            self.fired.count(fault);
            self.state.node_mut(node).clock = self.scenario.node_clock(&mut self.dice, self.state.now());
        }
        let at = self.some_time(4);
        self.queue.push(at, Event::Restart { node });
    }

    /// Evicts the key from the first node, starting at `from`, that holds units of it.
    fn evict(&mut self, from: usize) {
        let count = self.nodes.len();
        let idle = |&node: &usize| {
            let one = &self.state.nodes()[node];
            one.held().units > 0 && !one.is_asking() && one.waiters().is_empty()
        };
        if let Some(node) = (from..from + count).map(|node| node % count).find(idle) {
            self.fired.count(Fault::KeyEvicted);
            self.apply(Operation::Evict { node });
        }
    }

    fn step_store(&mut self, fault: Fault) {
        self.fired.count(fault);
        let millis = self.dice.within(1, 2 * self.scenario.window / 1_000_000) as i64;
        let by_ms = if fault == Fault::StoreSetBack { -millis } else { millis };
        self.apply(Operation::StepStore { by_ms });
    }

    fn fail_over(&mut self, fault: Fault) {
        let now = self.state.now();
        if fault == Fault::FailoverInSync {
            while self.state.store().behind() > 0 {
                self.apply(Operation::Replicate);
            }
        }
        if fault == Fault::FailoverWithLag {
            return self.lose_something();
        }
        let isolation = self.scenario.setup.isolation;
        if self.failed_over_at.is_some_and(|last| now < last + isolation) {
            self.fired.count(Fault::FailoverAgain);
        }
        let split = matches!(fault, Fault::SplitBrain | Fault::FailoverAgain);
        let with_old = if split { self.dice.roll() } else { 0 };
        self.fired.count(if split { Fault::SplitBrain } else { fault });
        self.failed_over_at = Some(now);
        self.apply(Operation::Failover { with_old });
    }

    /// Stalls the replica, sends requests to all nodes, and promotes the replica before it has received their
    /// writes.
    fn lose_something(&mut self) {
        let until = self.some_time(3);
        self.replica_stalled_until = self.replica_stalled_until.max(until + Duration::from_nanos(1));
        self.queue.push(until, Event::LaggedFailover);
    }

    pub(super) fn fail_over_lagged(&mut self) {
        if self.is_quiet || self.state.store().behind() == 0 {
            return;
        }
        self.fired.count(Fault::FailoverWithLag);
        self.failed_over_at = Some(self.state.now());
        self.apply(Operation::Failover { with_old: 0 });
    }

    fn forget(&mut self) {
        if self.state.ledger().windows().last().is_some_and(|tally| tally.lent > 0)
            || self.state.ledger().pace.is_some()
        {
            self.fired.count(Fault::StoreForgets);
        }
        debug_assert_ne!(self.scenario.setup.replication, Replication::Wait);
        self.apply(Operation::Forget);
    }

    fn set_limit(&mut self, fault: Fault) {
        let (first, now) =
            (self.scenario.setup.authority.limit().units(), self.state.store().authority.limit().units());
        let units = match fault {
            Fault::LimitLowered if now > 1 => self.dice.within(1, now - 1),
            Fault::LimitRaised => self.dice.within(now + 1, now + 1 + first),
            _ => return,
        };
        self.fired.count(fault);
        self.apply(Operation::SetLimit { units });
    }
}
