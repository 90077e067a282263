//! Requests, served by the local lease and then by the holder.

use throttlekit_core::lease::{HolderStep, LocalLease, PlainWord, Spend};
use throttlekit_core::{Cost, Timestamp};

use super::node::{Node, Taken, Waiter};
use super::{ClusterState, Setup};
use crate::bugs::LeaseBug;

/// The number of requests with each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Allowed.
    pub allowed: u64,
    /// Denied.
    pub denied: u64,
    /// Waiting for a reply.
    pub wait: u64,
    /// Rejected: too many wait.
    pub turned_away: u64,
}

impl ClusterState {
    /// Sends `times` requests of one cost, one after another, at this instant.
    pub fn ask(&mut self, node: usize, cost: Cost, times: u64) -> Answers {
        self.ask_again(node, Waiter { cost, tries: 0 }, times)
    }

    pub(super) fn ask_again(&mut self, node: usize, asks: Waiter, times: u64) -> Answers {
        let (setup, at) = (&self.setup, self.nodes[node].clock.read(self.now));
        let one = &mut self.nodes[node];
        if !one.is_up {
            return Answers::default();
        }
        let local_lease = one.local_lease();
        let before = local_lease.units();
        let mut answers = Answers::default();
        let mut too_early = false;
        for _ in 0..times {
            match one.turn(setup, &local_lease, asks.cost, at) {
                HolderStep::Spent { .. } => answers.allowed += 1,
                HolderStep::Deny(_) => {
                    answers.denied += 1;
                    too_early |= !one.told.is_some_and(|told| asks.cost >= told.cost && at < told.until);
                }
                HolderStep::Wait if one.waiters.len() < setup.waiters_max => {
                    answers.wait += 1;
                    one.waiters.push(Waiter { cost: asks.cost, tries: asks.tries + 1 });
                    one.cheapest = Some(one.cheapest.map_or(asks.cost, |least| least.min(asks.cost)));
                }
                HolderStep::Wait => {
                    one.cheapest = Some(one.cheapest.map_or(asks.cost, |least| least.min(asks.cost)));
                    answers.turned_away = times - answers.allowed - answers.denied - answers.wait;
                    break;
                }
            }
        }
        one.put(&local_lease);
        let spent = answers.allowed * asks.cost;
        let gained = (local_lease.units() + spent).saturating_sub(before);
        self.note_gain(node, gained);
        if too_early {
            self.ledger.break_invariant("deny-exact", || {
                format!("node {node} denied a cost of {} that no denial covers at {at}", asks.cost)
            });
        }
        self.ledger.decisions += answers.allowed + answers.denied;
        self.admit(node, spent, answers.allowed);
        answers
    }

    /// Does the first half of a decision, or a whole one if the local lease has too little.
    pub(super) fn take(&mut self, node: usize, cost: Cost) {
        let at = self.nodes[node].clock.read(self.now);
        let one = &mut self.nodes[node];
        if !one.is_up {
            return;
        }
        if one.held.units < cost || one.taken.len() >= self.setup.taken_max {
            self.ask(node, cost, 1);
            return;
        }
        let (local_lease, until) = (one.local_lease(), one.held.until);
        // At the epoch nothing has expired: this takes the units and leaves the check for later.
        if let Spend::Spent { .. } = local_lease.spend(cost, || Timestamp::EPOCH) {
            one.taken.push(Taken { cost, until, at });
        }
        one.put(&local_lease);
    }

    /// Does the second half: the taken units with their own expiry, and the current clock.
    pub(super) fn decide(&mut self, node: usize) {
        let one = &mut self.nodes[node];
        if one.taken.is_empty() {
            return;
        }
        let taken = one.taken.remove(0);
        let at =
            if self.setup.has(LeaseBug::ClockReadBeforeTaking) { taken.at } else { one.clock.read(self.now) };
        let local_lease: LocalLease<PlainWord> = LocalLease::new();
        local_lease.fill(taken.cost, taken.until, false);
        self.ledger.decisions += 1;
        if let Spend::Spent { .. } = local_lease.spend(taken.cost, || at) {
            self.admit(node, taken.cost, 1);
        }
    }

    /// Retries every waiting caller; one with too many attempts gives up.
    pub(super) fn wake(&mut self, node: usize) {
        for waiter in core::mem::take(&mut self.nodes[node].waiters) {
            if waiter.tries < self.setup.tries_max {
                self.ask_again(node, waiter, 1);
            }
        }
    }
}

impl Node {
    /// Serves one request: the local lease, then the holder.
    #[inline(always)]
    fn turn(
        &mut self,
        setup: &Setup,
        local_lease: &LocalLease<PlainWord>,
        cost: Cost,
        at: Timestamp,
    ) -> HolderStep {
        let takes = match setup.bug {
            Some(LeaseBug::CostIgnored) => 1,
            Some(LeaseBug::OneUnitShort) if cost > 1 && local_lease.units() == cost - 1 => cost - 1,
            _ => cost,
        };
        if let Spend::Spent { left } = local_lease.spend(takes, || at) {
            return HolderStep::Spent { left };
        }
        match self.holder.handle_ask(local_lease, takes, || at) {
            HolderStep::Wait => self.seeded_denial(setup, at).unwrap_or(HolderStep::Wait),
            turn => turn,
        }
    }
}
