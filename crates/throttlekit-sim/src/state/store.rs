//! The store: the production authority and account, a replica that lags, and failover between them.

use core::hash::{Hash, Hasher};
use core::time::Duration;
use std::collections::VecDeque;

use throttlekit_core::lease::{Account, Authority, Loan, Return, ReturnId, Want};
use throttlekit_core::rate::{Limit, Rule, Settle, State};
use throttlekit_core::{Decision, Retry, Timestamp};

use super::ledger::Ledger;
use super::seams::{lend_from, take_back_to};
use super::{Clock, Replication, Setup};
use crate::bugs::LeaseBug;
use crate::operation::Message;

/// The store of the limit. During a split brain, the server that answers depends on the node.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// The limit it lends from.
    pub authority: Authority,
    /// Its clock.
    pub clock: Clock,
    /// The sum of all forward steps of the clock, in nanoseconds.
    pub forward: u64,
    /// The number of forward steps.
    pub forward_steps: u64,
    /// The time, by its clock, until which units from before a forward step may be live.
    pub tainted_until: Timestamp,
    pub(super) primary: Server,
    replica: Account,
    /// Writes that the replica has not received, oldest first.
    log: VecDeque<Write>,
    old: Option<Old>,
    pub(super) written_at: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Server {
    pub(super) account: Account,
    /// The time of its last promotion, if any.
    promoted_at: Option<Timestamp>,
}

/// A primary that has not noticed that it was replaced.
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Change {
    Lend {
        want: Want,
        lent: Lent,
        /// True if the reply waits for the replica to have this.
        replies: bool,
    },
    TakeBack(ReturnId, Return),
}

/// A response that leaves the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lent {
    pub(super) node: usize,
    pub(super) id: u64,
    pub(super) loan: Loan,
    /// See [`Lot::until`](super::Lot::until).
    pub(super) until: u64,
    /// The limit in force at that time.
    pub(super) limit: u64,
    /// True if a replaced primary lent it.
    pub(super) by_old: bool,
}

impl Lent {
    pub(super) fn reply(&self) -> Message {
        Message::Reply { node: self.node, id: self.id, loan: self.loan }
    }
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

    /// Returns the reading of its clock.
    pub fn read(&self, now: Timestamp) -> Timestamp {
        self.clock.read(now)
    }

    /// Returns the time its clock has counted forward, which bounds the refill of a pace.
    pub fn came(&self, now: Timestamp) -> u64 {
        self.clock.ran(now) + self.forward
    }

    /// Returns its current window: the clock's, or the one it has already lent from if the clock was set
    /// back.
    pub fn window(&self, now: Timestamp) -> u64 {
        window_of(self.authority.limit(), &self.primary.account.state, self.read(now))
    }

    /// Returns `true` if units lent before a forward step of the clock may still be spent.
    pub fn is_tainted(&self, window: u64) -> bool {
        self.forward_steps > 0
            && window <= window_of(self.authority.limit(), &State::default(), self.tainted_until)
    }

    /// Handles a request. Returns the reply unless it must wait for the replica.
    pub(super) fn lend(
        &mut self,
        setup: &Setup,
        (node, id, want): (usize, u64, Want),
        now: Timestamp,
    ) -> Option<Lent> {
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
        let lives = loan.lives.map_or(u64::MAX, |lives| lives.as_nanos() as u64);
        let lent = Lent {
            node,
            id,
            loan,
            until: self.clock.ran(now).saturating_add(lives),
            limit: authority.limit().units(),
            by_old,
        };
        if loan.granted == 0 || setup.replication == Replication::None {
            return Some(lent);
        }
        let waits = setup.replication == Replication::Wait && !setup.has(LeaseBug::WaitSpendsUnacknowledged);
        if by_old {
            // No replica acknowledges the writes of an old primary.
            return (!waits).then_some(lent);
        }
        let what = Change::Lend { want, lent, replies: waits };
        self.log.push_back(Write { authority, at, what });
        (!waits).then_some(lent)
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
            self.log.push_back(Write { authority, at, what });
        }
    }

    /// Delivers the oldest write to the replica and returns the reply that waited for it.
    pub(super) fn replicate(&mut self) -> Option<Lent> {
        let write = self.log.pop_front()?;
        match write.what {
            Change::Lend { want, lent, replies } => {
                self.replica.lend(&write.authority, want, write.at);
                replies.then_some(lent)
            }
            Change::TakeBack(id, back) => {
                self.replica.take_back(&write.authority, id, back, write.at);
                None
            }
        }
    }

    /// Returns the number of writes that the replica has not received.
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

    /// Loses everything, without a record of it.
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
        if setup.has(LeaseBug::LimitChangeForgets) {
            self.primary.account = Account::default();
        }
    }

    fn drop_old(&mut self, at: Timestamp) {
        self.old.take_if(|old| at >= old.until);
    }

    /// Returns the replies that wait for the replica, and so are in flight.
    pub(super) fn held(&self) -> impl Iterator<Item = (usize, u64)> {
        self.log.iter().filter_map(|write| match write.what {
            Change::Lend { lent, replies: true, .. } => Some((lent.node, lent.id)),
            _ => None,
        })
    }
}

impl Server {
    /// Returns `true` if a promoted server must not lend: the window began before its predecessor had
    /// certainly stopped.
    fn refuses(&self, setup: &Setup, authority: &Authority, at: Timestamp) -> bool {
        let Some(promoted_at) = self.promoted_at.filter(|_| setup.replication == Replication::Fence) else {
            return false;
        };
        let known = self.account.state != State::default();
        if setup.has(LeaseBug::FenceMissing) || (setup.has(LeaseBug::FenceForKnownKeysOnly) && !known) {
            return false;
        }
        let isolation =
            if setup.has(LeaseBug::FenceWithoutIsolation) { Duration::ZERO } else { setup.isolation };
        let ends = end_of(authority.limit(), &self.account.state, at);
        // The window began at `promoted_at + isolation` or before: at that very instant the predecessor may
        // have lent.
        ends <= promoted_at + isolation + authority.limit().period()
    }
}

impl Change {
    fn loan(self) -> Option<Loan> {
        if let Self::Lend { lent, .. } = self { Some(lent.loan) } else { None }
    }
}

/// Returns a response that lends nothing until the window is over.
fn refusal(loan: Loan) -> Loan {
    let wait = loan.lives.unwrap_or_default();
    let decision =
        Decision { allowed: false, remaining: 0, retry_after: Retry::after(wait), ..loan.decision };
    Loan { granted: 0, decision, ..loan }
}

pub(super) fn window_of(limit: &Limit, state: &State, at: Timestamp) -> u64 {
    match limit {
        Limit::Window(_) => limit.mark(state, at).0,
        _ => 0,
    }
}

/// Returns the end of the limit's current window.
fn end_of(limit: &Limit, state: &State, at: Timestamp) -> Timestamp {
    limit.decide(state, 0, at).reset_at
}

impl Eq for Store {}

/// Authorities differ only in the units of their limit, and only if it is changed.
impl Hash for Store {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.authority.limit().units().hash(hasher);
        (self.clock, self.forward, self.tainted_until).hash(hasher);
        (&self.primary, &self.replica, &self.old).hash(hasher);
        for write in &self.log {
            (write.authority.limit().units(), write.at, write.what).hash(hasher);
        }
    }
}
