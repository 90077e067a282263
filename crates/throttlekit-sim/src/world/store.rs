//! The store: the production authority and account, a replica that lags, and failovers between them.

use core::hash::{Hash, Hasher};
use std::collections::VecDeque;

use core::time::Duration;
use throttlekit_core::lease::{Account, Authority, Epoch, Loan, Return, ReturnId, Want};
use throttlekit_core::rate::{Limit, Rule, Settle, State};
use throttlekit_core::{Decision, Retry, Timestamp};

use super::ledger::{Ledger, Lot};
use super::{Clock, Replication, Setup};
use crate::operation::Message;
use crate::planted::Planted;

/// Keeps the limit. Which of its servers answers depends on who asks, while a split brain lasts.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// What it lends from.
    pub authority: Authority,
    /// Its clock.
    pub clock: Clock,
    /// By how much the clock was ever set forward, in nanoseconds.
    pub forward: u64,
    /// How often.
    pub forward_steps: u64,
    /// Until when, by its clock, units may be about that were lent before the clock was set forward.
    pub tainted_until: Timestamp,
    primary: Server,
    replica: Account,
    /// Writes that the replica has not received, oldest first.
    log: VecDeque<Write>,
    old: Option<Old>,
    written_at: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Server {
    account: Account,
    /// When it took over, if it ever did.
    promoted_at: Option<Timestamp>,
}

/// A primary that does not know that it was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Old {
    server: Server,
    nodes: u64,
    until: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
struct Write {
    authority: Authority,
    at: Timestamp,
    what: Change,
    /// What waits for the replica to have this.
    reply: Option<Message>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Change {
    Lend(Want, Loan),
    TakeBack(ReturnId, Return),
}

impl Store {
    pub(super) fn new(setup: &Setup) -> Self {
        Self {
            authority: setup.authority,
            clock: setup.store_clock,
            forward: 0,
            forward_steps: 0,
            tainted_until: Timestamp::EPOCH,
            primary: Server::default(),
            replica: Account::default(),
            log: VecDeque::new(),
            old: None,
            written_at: Timestamp::EPOCH,
        }
    }

    /// What its clock shows.
    pub fn read(&self, now: Timestamp) -> Timestamp {
        self.clock.read(now)
    }

    /// How far its clock has come, counting only the way forward: what a pace may refill by.
    pub fn came(&self, now: Timestamp) -> u64 {
        self.clock.ran(now) + self.forward
    }

    /// The window it is in: its clock's, or the one it has already lent from if its clock was set back.
    pub fn window(&self, now: Timestamp) -> u64 {
        window_of(self.authority.limit(), &self.primary.account.state, self.read(now))
    }

    /// Whether units lent before its clock was set forward may still be spent.
    pub fn is_tainted(&self, window: u64) -> bool {
        self.forward_steps > 0
            && window <= window_of(self.authority.limit(), &State::default(), self.tainted_until)
    }

    /// Answers a request. Gives the reply unless it must wait for the replica.
    pub(super) fn lend(
        &mut self,
        setup: &Setup,
        ledger: &mut Ledger,
        (node, id, want): (usize, u64, Want),
        now: Timestamp,
    ) -> Option<Message> {
        let at = self.read(now);
        self.drop_old(at);
        self.plant_forgetting(setup, at);
        let authority = self.authority;
        let split = self.old.as_mut().filter(|old| old.nodes >> node & 1 == 1);
        let by_old = split.is_some();
        let server = split.map_or(&mut self.primary, |old| &mut old.server);
        let loan = if server.refuses(setup, &authority, at) {
            refusal(authority.look(&server.account.state, want, at))
        } else {
            lend_from(setup, &authority, &mut server.account, want, at)
        };
        let reply = Message::Reply { node, id, loan };
        let lives = loan.lives.map_or(u64::MAX, |lives| lives.as_nanos() as u64);
        let until = self.clock.ran(now).saturating_add(lives);
        ledger.lend(node, Lot { window: loan.epoch.0, until, units: loan.granted });
        self.note(ledger, loan, by_old, setup);
        if loan.granted == 0 || setup.replication == Replication::None {
            return Some(reply);
        }
        if by_old {
            // Nobody acknowledges what an old primary writes.
            return (setup.replication != Replication::Wait).then_some(reply);
        }
        let waits = setup.replication == Replication::Wait && !setup.has(Planted::WaitSpendsUnacknowledged);
        let write = Write { authority, at, what: Change::Lend(want, loan), reply: waits.then_some(reply) };
        self.log.push_back(write);
        (!waits).then_some(reply)
    }

    fn note(&mut self, ledger: &mut Ledger, loan: Loan, by_old: bool, setup: &Setup) {
        if loan.granted == 0 {
            return;
        }
        let lost = if by_old && setup.replication == Replication::Async { loan.granted } else { 0 };
        if let Limit::Window(_) = self.authority.limit() {
            let tally = ledger.window(loan.epoch.0);
            tally.limit = tally.limit.max(self.authority.limit().units());
            tally.lent += loan.granted;
            tally.lost += lost;
        } else {
            ledger.lost += lost;
        }
    }

    /// Takes units back.
    pub(super) fn take_back(
        &mut self,
        setup: &Setup,
        node: usize,
        (id, back): (ReturnId, Return),
        now: Timestamp,
    ) {
        let at = self.read(now);
        self.drop_old(at);
        let authority = self.authority;
        let split = self.old.as_mut().filter(|old| old.nodes >> node & 1 == 1);
        if let Some(old) = split {
            return take_back_to(setup, &authority, &mut old.server.account, (id, back), at);
        }
        take_back_to(setup, &authority, &mut self.primary.account, (id, back), at);
        if setup.replication != Replication::None {
            let what = Change::TakeBack(id, back);
            self.log.push_back(Write { authority, at, what, reply: None });
        }
    }

    /// The replica receives the oldest write; whoever waited for that gets its reply.
    pub(super) fn replicate(&mut self) -> Option<Message> {
        let write = self.log.pop_front()?;
        match write.what {
            Change::Lend(want, _) => {
                self.replica.lend(&write.authority, want, write.at);
            }
            Change::TakeBack(id, back) => self.replica.take_back(&write.authority, id, back, write.at),
        }
        write.reply
    }

    /// Writes that the replica has not received.
    pub fn behind(&self) -> usize {
        self.log.len()
    }

    pub(super) fn fail_over(&mut self, setup: &Setup, ledger: &mut Ledger, with_old: u64, now: Timestamp) {
        let at = self.read(now);
        let lost: Vec<Loan> = self.log.drain(..).filter_map(|write| write.what.loan()).collect();
        self.lose(setup, ledger, &lost);
        let promoted = Server { account: self.replica.clone(), promoted_at: Some(at) };
        let server = core::mem::replace(&mut self.primary, promoted);
        let until = at + setup.isolation;
        self.old = (with_old != 0).then_some(Old { server, nodes: with_old, until });
    }

    /// Everything is gone, and nobody knows what it was.
    pub(super) fn forget(&mut self, setup: &Setup, ledger: &mut Ledger, now: Timestamp) {
        if setup.replication == Replication::Async {
            ledger.lose_all(self.authority.limit().units());
        }
        self.log.clear();
        self.old = None;
        self.replica = Account::default();
        self.primary = Server { account: Account::default(), promoted_at: Some(self.read(now)) };
    }

    fn lose(&mut self, setup: &Setup, ledger: &mut Ledger, loans: &[Loan]) {
        if setup.replication != Replication::Async {
            return;
        }
        if let Limit::Window(_) = self.authority.limit() {
            loans.iter().for_each(|loan| ledger.window(loan.epoch.0).lost += loan.granted);
        } else {
            // A bucket that forgets is at most full.
            let units: u64 = loans.iter().map(|loan| loan.granted).sum();
            ledger.lost += units.min(self.authority.limit().units());
        }
    }

    pub(super) fn step(&mut self, by_ms: i64, now: Timestamp) {
        let was = self.read(now);
        let ends = end_of(self.authority.limit(), &self.primary.account.state, was);
        self.clock.step(by_ms);
        if by_ms <= 0 {
            return;
        }
        let by = Duration::from_millis(by_ms.unsigned_abs());
        self.forward += by.as_nanos() as u64;
        self.forward_steps += 1;
        let last = if self.tainted_until > was { self.tainted_until } else { was };
        self.tainted_until = last.max(ends) + by;
    }

    pub(super) fn set_limit(&mut self, setup: &Setup, limit: Limit) {
        let term = self.authority.term();
        self.authority = Authority::new(limit, term).expect("the same kind of limit");
        if setup.has(Planted::LimitChangeForgets) {
            self.primary.account = Account::default();
        }
    }

    fn drop_old(&mut self, at: Timestamp) {
        self.old.take_if(|old| at >= old.until);
    }

    /// Replies that wait for the replica, and so are under way.
    pub(super) fn held(&self) -> impl Iterator<Item = &Message> {
        self.log.iter().filter_map(|write| write.reply.as_ref())
    }

    fn plant_forgetting(&mut self, setup: &Setup, at: Timestamp) {
        let limit = self.authority.limit();
        let state = &mut self.primary.account.state;
        let quarter = limit.period() / 4;
        let ahead =
            matches!(state, State::Count(count) if count.window > window_of(limit, &State::default(), at));
        let forgets = setup.has(Planted::StateForgottenEarly) && at.since(self.written_at) > quarter;
        if forgets || (ahead && setup.has(Planted::WindowMovesBack)) {
            *state = State::default();
        }
        self.written_at = at;
    }
}

impl Server {
    /// A server that took over lends nothing from a window that began before its forerunner had surely stopped.
    fn refuses(&self, setup: &Setup, authority: &Authority, at: Timestamp) -> bool {
        let Some(promoted_at) = self.promoted_at.filter(|_| setup.replication == Replication::Fence) else {
            return false;
        };
        let known = self.account.state != State::default();
        if setup.has(Planted::FenceMissing) || (setup.has(Planted::FenceForKnownKeysOnly) && !known) {
            return false;
        }
        let isolation =
            if setup.has(Planted::FenceWithoutIsolation) { Duration::ZERO } else { setup.isolation };
        let ends = end_of(authority.limit(), &self.account.state, at);
        // The window began at `promoted_at + isolation` or before: at that very instant the forerunner may have lent.
        ends <= promoted_at + isolation + authority.limit().period()
    }
}

impl Change {
    fn loan(self) -> Option<Loan> {
        if let Self::Lend(_, loan) = self { Some(loan) } else { None }
    }
}

fn lend_from(setup: &Setup, authority: &Authority, account: &mut Account, want: Want, at: Timestamp) -> Loan {
    let loan = account.lend(authority, want, at);
    if setup.has(Planted::LendsMoreThanIsLeft) && loan.granted > 0 {
        return Loan { granted: want.wants, ..loan };
    }
    loan
}

fn take_back_to(
    setup: &Setup,
    authority: &Authority,
    account: &mut Account,
    (id, back): (ReturnId, Return),
    at: Timestamp,
) {
    if setup.has(Planted::ReturnCountedTwice) {
        return authority.take_back(&mut account.state, back, at);
    }
    if setup.has(Planted::ReturnIntoAnotherWindow) {
        let mark = authority.limit().mark(&account.state, at);
        return account.take_back(authority, id, Return { epoch: Epoch(mark.0), ..back }, at);
    }
    if setup.has(Planted::RollingReturned) {
        let limit = *authority.limit();
        let mark = limit.mark(&account.state, at);
        return limit.refund(&mut account.state, mark, back.units, at);
    }
    account.take_back(authority, id, back, at);
}

/// Nothing is lent until the window is over.
fn refusal(loan: Loan) -> Loan {
    let wait = loan.lives.unwrap_or_default();
    let decision =
        Decision { allowed: false, remaining: 0, retry_after: Retry::after(wait), ..loan.decision };
    Loan { granted: 0, decision, ..loan }
}

fn window_of(limit: &Limit, state: &State, at: Timestamp) -> u64 {
    match limit {
        Limit::Window(_) => limit.mark(state, at).0,
        _ => 0,
    }
}

/// When the window ends in which the limit is.
fn end_of(limit: &Limit, state: &State, at: Timestamp) -> Timestamp {
    limit.decide(state, 0, at).reset_at
}

impl Eq for Store {}

/// Authorities differ in nothing but their limit's units, and that only if it is changed.
impl Hash for Store {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.authority.limit().units().hash(hasher);
        (self.clock, self.forward, self.tainted_until).hash(hasher);
        (&self.primary, &self.replica, &self.old).hash(hasher);
        for write in &self.log {
            (write.authority.limit().units(), write.at, write.what, write.reply).hash(hasher);
        }
    }
}
