//! Requests, replies and returns, and what happens to those who send them.

use core::time::Duration;

use throttlekit_core::lease::{Loan, PlainWord, Purse, Reply, Return, ReturnId, Term};
use throttlekit_core::{Cost, Timestamp};

use super::World;
use super::node::{Node, Sent, Told};
use crate::operation::Message;
use crate::planted::Planted;

impl World {
    pub(super) fn send(&mut self, message: Message) {
        let at = self.in_flight.partition_point(|other| other.order() < message.order());
        self.in_flight.insert(at, message);
    }

    pub(super) fn remove(&mut self, message: Message) -> bool {
        let found = self.in_flight.iter().position(|other| *other == message);
        found.map(|at| self.in_flight.remove(at)).is_some()
    }

    /// The smallest name that no message of the node carries: none of an earlier request can be taken for it.
    fn free_id(&self, node: usize) -> u64 {
        if self.setup.has(Planted::IdsAnewAfterRestart) {
            return self.nodes[node].second.map_or(0, |sent| sent.id + 1);
        }
        let used = |id: u64| {
            let mut messages = self.in_flight.iter().chain(self.store.held());
            messages.any(|message| message.node() == node && message.request_id() == Some(id))
        };
        (0..).find(|&id| !used(id)).expect("fewer messages than numbers")
    }

    pub(super) fn request(&mut self, node: usize) -> Option<Message> {
        let id = self.free_id(node);
        let one = &mut self.nodes[node];
        if !one.is_up {
            return None;
        }
        let (purse, at) = (one.purse(), one.clock.read(self.now));
        let Some(request) = one.holder.poll_request(&purse, id, one.batch, at) else {
            self.check_waiters(node);
            return None;
        };
        let short_of = one.cheapest.unwrap_or(purse.left(at) + 1);
        let sent = Sent { id, at, wants: request.want.wants, short_of };
        one.flight = Some(sent);
        if self.setup.has(Planted::IdsAnewAfterRestart) {
            one.second = Some(sent);
        }
        let message = Message::Request { node, request };
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
                let reply = self.store.lend(&self.setup, &mut self.ledger, ask, self.now)?;
                self.send(reply);
                Some(reply)
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
        let (purse, at) = (one.purse(), one.clock.read(self.now));
        let before = purse.units();
        let flight = one.flight;
        let (id, loan) = one.planted_reply(&setup, id, loan, (at, store_now));
        let outcome = one.holder.handle_reply(&purse, id, loan, at);
        if outcome != Reply::Late {
            (one.flight, one.cheapest) = (None, None);
        }
        if outcome == Reply::Denied {
            let sent = flight.expect("only what was sent is denied");
            let wait = loan.decision.retry_after.wait();
            let until = wait.map_or(Timestamp::MAX, |wait| sent.at + wait);
            one.told = Some(Told { cost: sent.short_of, until, at, wait: wait.unwrap_or_default() });
        }
        one.planted_credit(&setup, &purse, (outcome, loan), flight, at);
        one.put(&purse);
        let gained = purse.units().saturating_sub(before);
        self.note_gain(node, gained);
        if outcome != Reply::Late {
            self.wake(node);
        }
    }

    pub(super) fn fail(&mut self, node: usize) {
        let Some(sent) = self.nodes[node].flight.take() else { return };
        let (has_wake, credits) =
            (!self.setup.has(Planted::LostWaiter), self.setup.has(Planted::FailureCredited));
        let one = &mut self.nodes[node];
        one.holder.handle_failure(sent.id);
        one.cheapest = None;
        if credits {
            let (purse, at) = (one.purse(), one.clock.read(self.now));
            let before = purse.units();
            purse.fill(sent.wants, at + Duration::from_millis(100), true);
            one.put(&purse);
            self.note_gain(node, purse.units() - before);
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
        let (purse, at) = (one.purse(), one.clock.read(self.now));
        let until = purse.until();
        let back = match (one.holder.poll_return(&purse, at), self.setup.planted) {
            (Some(back), Some(Planted::ReturnKept)) => {
                purse.fill(back.units, until, false);
                Some(back)
            }
            (Some(back), Some(Planted::ReturnOfTaken)) => {
                let taken: Cost = one.taken.iter().map(|taken| taken.cost).sum();
                Some(Return { units: back.units + taken, ..back })
            }
            (None, Some(Planted::RollingReturned)) if !one.holder.is_asking() => {
                let units = purse.empty(at);
                (units > 0).then_some(Return { epoch: one.returns.0, units })
            }
            (back, _) => back,
        };
        one.put(&purse);
        let back = back?;
        let nth = if one.returns.0 == back.epoch { one.returns.1 + 1 } else { 1 };
        one.returns = (back.epoch, nth);
        let id = ReturnId((node as u128) << 96 | u128::from(back.epoch.0) << 32 | u128::from(nth));
        let message = Message::Return { node, id, back };
        self.send(message);
        Some(message)
    }

    /// Only a key that nobody waits for is forgotten.
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
        one.saved = self.setup.has(Planted::CreditsSurviveRestart).then_some(saved);
    }

    pub(super) fn restart(&mut self, node: usize) {
        let one = &mut self.nodes[node];
        one.is_up = true;
        let Some((units, lives)) = one.saved.take() else { return };
        let (purse, at) = (one.purse(), one.clock.read(self.now));
        purse.fill(units, at + lives, false);
        one.put(&purse);
    }

    /// What a node forgets, it forgets with its request: a reply finds nobody who waits for it.
    fn empty_node(&mut self, node: usize) {
        let one = &mut self.nodes[node];
        let (clock, batch, returns, is_up) = (one.clock, one.batch, one.returns, one.is_up);
        let (waiters, taken) = (core::mem::take(&mut one.waiters), core::mem::take(&mut one.taken));
        *one = Node { batch, returns, is_up, waiters, taken, ..Node::new(&self.setup, clock) };
    }

    pub(super) fn replicate(&mut self) -> Option<Message> {
        let reply = self.store.replicate()?;
        self.send(reply);
        Some(reply)
    }
}

impl Node {
    /// What a faulty driver hands to its holder.
    fn planted_reply(
        &self,
        setup: &super::Setup,
        id: u64,
        loan: Loan,
        (at, store_now): (Timestamp, Timestamp),
    ) -> (u64, Loan) {
        let Some(sent) = self.flight else { return (id, loan) };
        let since = at.since(sent.at);
        let lives = |lives: Option<Duration>| Loan { lives, ..loan };
        match setup.planted {
            Some(Planted::ReplyAnchored) => (id, lives(loan.lives.map(|lives| lives + since))),
            Some(Planted::WallClockExpiry) if setup.plan.term == Term::Window => {
                // Wall clocks are set by hand: each is off by up to 60 milliseconds.
                let wall = Timestamp::from_nanos(
                    store_now.as_nanos().saturating_sub(self.clock.offset as u64 % 60_000_000),
                );
                let ends = store_now + loan.lives.unwrap_or_default().saturating_sub(since);
                (id, lives(Some(ends.since(wall) + since)))
            }
            Some(Planted::LeftoverKept) => (id, Loan { epoch: Default::default(), ..loan }),
            Some(Planted::LateReplyUnderNewSend) => (sent.id, loan),
            Some(Planted::PartialCreditedInFull) if loan.granted > 0 => {
                (id, Loan { granted: loan.granted.max(sent.wants), ..loan })
            }
            _ => (id, loan),
        }
    }

    /// What a faulty driver does to the purse after its holder has had the reply.
    fn planted_credit(
        &mut self,
        setup: &super::Setup,
        purse: &Purse<PlainWord>,
        (outcome, loan): (Reply, Loan),
        flight: Option<Sent>,
        at: Timestamp,
    ) {
        let sent = flight.map_or(at, |sent| sent.at);
        let until = loan.lives.map_or(Timestamp::MAX, |lives| setup.plan.margin.deadline(sent, lives));
        match (setup.planted, outcome) {
            (Some(Planted::CreditPerWaiter), Reply::Credited) => {
                for _ in 1..self.waiters.len() {
                    purse.fill(loan.granted, purse.until(), true);
                }
            }
            (Some(Planted::DuplicateCredited), Reply::Late) => purse.fill(loan.granted, until, true),
            (Some(Planted::DenialExtendsUnits), Reply::Denied) if purse.units() > 0 => {
                purse.fill(0, until, true);
            }
            (Some(Planted::RollingUnderNewerDeadline), Reply::Credited) if until > purse.until() => {
                purse.fill(0, until, true);
            }
            _ => {}
        }
    }
}
