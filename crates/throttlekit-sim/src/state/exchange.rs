//! Requests, replies and returns, and their effects on the nodes.

use core::time::Duration;

use throttlekit_core::lease::{HolderRequest, Loan, Reply, Return, ReturnId, Want};
use throttlekit_core::{Cost, Timestamp};

use super::ClusterState;
use super::node::{Node, Sent, Told};
use super::store::Lent;
use crate::bugs::LeaseBug;
use crate::operation::Message;

impl ClusterState {
    pub(super) fn send(&mut self, message: Message) {
        let at = self.in_flight.partition_point(|other| other.order() < message.order());
        self.in_flight.insert(at, message);
    }

    pub(super) fn remove(&mut self, message: Message) -> bool {
        let found = self.in_flight.iter().position(|other| *other == message);
        found.map(|at| self.in_flight.remove(at)).is_some()
    }

    /// Returns the smallest identifier that no message of the node carries, so that no earlier request can be
    /// mistaken for it.
    fn free_id(&self, node: usize) -> u64 {
        if self.setup.has(LeaseBug::NamesUsedAgain) {
            return 0;
        }
        let used = |id: u64| {
            let carries = |message: &Message| message.node() == node && message.request_id() == Some(id);
            self.in_flight.iter().any(carries) || self.store.held().any(|held| held == (node, id))
        };
        (0..).find(|&id| !used(id)).expect("fewer messages than numbers")
    }

    pub(super) fn request(&mut self, node: usize) -> Option<Message> {
        let id = self.free_id(node);
        let one = &mut self.nodes[node];
        if !one.is_up {
            return None;
        }
        let (local_lease, at) = (one.local_lease(), one.clock.read(self.now));
        let Some(request) = one.holder.poll_request(&local_lease, id, one.batch, at) else {
            self.check_waiters(node);
            return self.request_twice(node, id);
        };
        let short_of = one.cheapest.unwrap_or(local_lease.left(at) + 1);
        let sent = Sent { id, at, wants: request.want.wants, short_of };
        one.flight = Some(sent);
        let message = Message::Request { node, request };
        self.send(message);
        Some(message)
    }

    /// A seeded bug: sends another request beside the one in flight.
    fn request_twice(&mut self, node: usize, id: u64) -> Option<Message> {
        let one = &mut self.nodes[node];
        let first = one.flight.filter(|_| self.setup.has(LeaseBug::TwoRequestsUnderWay))?;
        if one.second.is_some() || one.waiters.is_empty() {
            return None;
        }
        one.second = Some(Sent { id, at: one.clock.read(self.now), ..first });
        let want = Want { wants: first.wants, least: 1, share: 1 };
        let message = Message::Request { node, request: HolderRequest { id, want } };
        self.send(message);
        Some(message)
    }

    pub(super) fn deliver(&mut self, message: Message) -> Option<Message> {
        if !self.remove(message) {
            return None;
        }
        match message {
            Message::Request { node, request } => {
                let ask = (node, request.id, request.want);
                let lent = self.store.lend(&self.setup, ask, self.now)?;
                Some(self.answer(&lent))
            }
            Message::Reply { node, id, loan } => {
                if self.nodes[node].is_up {
                    self.reply(node, id, loan);
                }
                None
            }
            Message::Return { node, id, back } => {
                self.store.take_back(&self.setup, node, (id, back), self.now);
                None
            }
        }
    }

    fn reply(&mut self, node: usize, id: u64, loan: Loan) {
        let (setup, store_now) = (self.setup, self.store.read(self.now));
        let one = &mut self.nodes[node];
        let (local_lease, at) = (one.local_lease(), one.clock.read(self.now));
        let before = local_lease.units();
        let flight = one.flight;
        let (id, loan) = one.seeded_reply(&setup, id, loan, (at, store_now));
        let outcome = one.holder.handle_reply(&local_lease, id, loan, at);
        if outcome != Reply::Late {
            (one.flight, one.cheapest) = (None, None);
        }
        if outcome == Reply::Denied {
            let sent = flight.expect("only what was sent is denied");
            let wait = loan.decision.retry_after.wait();
            let until = wait.map_or(Timestamp::MAX, |wait| sent.at + wait);
            one.told = Some(Told { cost: sent.short_of, until, at, wait: wait.unwrap_or_default() });
        }
        one.seeded_credit(&setup, &local_lease, (outcome, id, loan), flight, at);
        one.put(&local_lease);
        let gained = local_lease.units().saturating_sub(before);
        self.note_gain(node, gained);
        if outcome != Reply::Late {
            self.wake(node);
        }
    }

    pub(super) fn fail(&mut self, node: usize) {
        let Some(sent) = self.nodes[node].flight.take() else { return };
        let (has_wake, credits) =
            (!self.setup.has(LeaseBug::LostWaiter), self.setup.has(LeaseBug::FailureCredited));
        let one = &mut self.nodes[node];
        one.holder.handle_failure(sent.id);
        one.cheapest = None;
        if credits {
            let (local_lease, at) = (one.local_lease(), one.clock.read(self.now));
            let before = local_lease.units();
            local_lease.fill(sent.wants, at + Duration::from_millis(100), true);
            one.put(&local_lease);
            self.note_gain(node, local_lease.units() - before);
        }
        if has_wake {
            self.wake(node);
        }
        self.check_waiters(node);
    }

    pub(super) fn low(&mut self, node: usize) {
        let one = &mut self.nodes[node];
        if one.is_up {
            one.holder.handle_low(one.clock.read(self.now));
        }
    }

    pub(super) fn give_back(&mut self, node: usize) -> Option<Message> {
        let one = &mut self.nodes[node];
        if !one.is_up {
            return None;
        }
        let (local_lease, at) = (one.local_lease(), one.clock.read(self.now));
        let until = local_lease.until();
        let back = match (one.holder.poll_return(&local_lease, at), self.setup.bug) {
            (Some(back), Some(LeaseBug::ReturnKept)) => {
                local_lease.fill(back.units, until, false);
                Some(back)
            }
            (Some(back), Some(LeaseBug::ReturnOfTaken)) => {
                let taken: Cost = one.taken.iter().map(|taken| taken.cost).sum();
                Some(Return { units: back.units + taken, ..back })
            }
            (None, Some(LeaseBug::RollingReturned)) if !one.holder.is_asking() => {
                let units = local_lease.empty(at);
                (units > 0).then_some(Return { epoch: one.returns.0, units })
            }
            (back, _) => back,
        };
        one.put(&local_lease);
        let back = back?;
        self.note_given_back(node, back.epoch.0, back.units);
        let one = &mut self.nodes[node];
        let nth = if one.returns.0 == back.epoch { one.returns.1 + 1 } else { 1 };
        one.returns = (back.epoch, nth);
        let id = ReturnId((node as u128) << 96 | u128::from(back.epoch.0) << 32 | u128::from(nth));
        let message = Message::Return { node, id, back };
        self.send(message);
        Some(message)
    }

    /// Evicts the key if no caller waits for it.
    pub(super) fn evict(&mut self, node: usize) {
        if self.nodes[node].waiters.is_empty() && !self.nodes[node].is_asking() {
            self.empty_node(node);
        }
    }

    pub(super) fn crash(&mut self, node: usize) {
        let one = &mut self.nodes[node];
        let at = one.clock.read(self.now);
        let saved = (one.held.units, one.held.until.since(at));
        one.waiters.clear();
        one.taken.clear();
        self.empty_node(node);
        let one = &mut self.nodes[node];
        one.is_up = false;
        one.saved = self.setup.has(LeaseBug::CreditsSurviveRestart).then_some(saved);
    }

    pub(super) fn restart(&mut self, node: usize) {
        let one = &mut self.nodes[node];
        one.is_up = true;
        let Some((units, lives)) = one.saved.take() else { return };
        let (local_lease, at) = (one.local_lease(), one.clock.read(self.now));
        local_lease.fill(units, at + lives, false);
        one.put(&local_lease);
    }

    /// Clears a node together with its request: a later reply finds no waiting caller.
    fn empty_node(&mut self, node: usize) {
        let one = &mut self.nodes[node];
        let (clock, batch, returns, is_up) = (one.clock, one.batch, one.returns, one.is_up);
        let (waiters, taken) = (core::mem::take(&mut one.waiters), core::mem::take(&mut one.taken));
        *one = Node { batch, returns, is_up, waiters, taken, ..Node::new(&self.setup, clock) };
    }

    pub(super) fn replicate(&mut self) -> Option<Message> {
        let lent = self.store.replicate()?;
        Some(self.answer(&lent))
    }

    fn answer(&mut self, lent: &Lent) -> Message {
        self.note_lent(lent);
        self.send(lent.reply());
        lent.reply()
    }
}
