//! The places of seeded bugs: the inputs and outputs of production code in a faulty driver or store.

use core::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::lease::{
    Account, Authority, Epoch, HolderOptions, HolderStep, Loan, LocalLease, PlainWord, Reply, Return,
    ReturnId, Term, Want,
};
use throttlekit_core::rate::{Settle, State};

use super::node::{Node, Sent};
use super::store::window_of;
use super::{Setup, Store};
use crate::bugs::LeaseBug;

impl Node {
    /// Returns the reply that a faulty driver hands to its holder.
    pub(super) fn seeded_reply(
        &self,
        setup: &Setup,
        id: u64,
        loan: Loan,
        (at, store_now): (Timestamp, Timestamp),
    ) -> (u64, Loan) {
        let Some(sent) = self.flight else { return (id, loan) };
        let since = at.since(sent.at);
        let lives = |lives: Option<Duration>| Loan { lives, ..loan };
        match setup.bug {
            Some(LeaseBug::ReplyAnchored) => (id, lives(loan.lives.map(|lives| lives + since))),
            Some(LeaseBug::WallClockExpiry) if setup.plan.term == Term::Window => {
                // Wall clocks are set by hand: each lags by up to 60 milliseconds.
                let behind = self.clock.offset as u64 % 60_000_000;
                let wall = Timestamp::from_nanos(store_now.as_nanos().saturating_sub(behind));
                (id, lives(Some(loan.decision.reset_at.since(wall) + since)))
            }
            Some(LeaseBug::LateReplyUnderNewSend) => (sent.id, loan),
            Some(LeaseBug::PartialCreditedInFull) if loan.granted > 0 => {
                (id, Loan { granted: loan.granted.max(sent.wants), ..loan })
            }
            _ => (id, loan),
        }
    }

    /// Changes the local lease as a faulty driver does after its holder has handled the reply.
    pub(super) fn seeded_credit(
        &mut self,
        setup: &Setup,
        local_lease: &LocalLease<PlainWord>,
        (outcome, id, loan): (Reply, u64, Loan),
        flight: Option<Sent>,
        at: Timestamp,
    ) {
        let second = self.second.take_if(|sent| outcome == Reply::Late && sent.id == id);
        let flight = flight.filter(|_| second.is_none()).or(second);
        let sent = flight.map_or(at, |sent| sent.at);
        let until = loan.lives.map_or(Timestamp::MAX, |lives| setup.plan.margin.deadline(sent, lives));
        match (setup.bug, outcome) {
            (Some(LeaseBug::CreditPerWaiter), Reply::Credited) => {
                for _ in 1..self.waiters.len() {
                    local_lease.fill(loan.granted, local_lease.until(), true);
                }
            }
            (Some(LeaseBug::LeftoverKept), Reply::Credited) if local_lease.units() == loan.granted => {
                local_lease.fill(self.held.units, until, true);
            }
            (Some(LeaseBug::TwoRequestsUnderWay), Reply::Late) if second.is_some() => {
                local_lease.fill(loan.granted, until, true);
            }
            (Some(LeaseBug::DuplicateCredited), Reply::Late) => local_lease.fill(loan.granted, until, true),
            (Some(LeaseBug::DenialExtendsUnits), Reply::Denied) if local_lease.units() > 0 => {
                local_lease.fill(0, until, true);
            }
            (Some(LeaseBug::RollingUnderNewerDeadline), Reply::Credited) if until > local_lease.until() => {
                local_lease.fill(0, until, true);
            }
            _ => {}
        }
    }

    /// Returns a faulty driver's own decision about the coverage of a denial.
    pub(super) fn seeded_denial(&self, setup: &Setup, at: Timestamp) -> Option<HolderStep> {
        let told = self.told.filter(|_| setup.bug.is_some())?;
        let decision = throttlekit_core::ALLOW_FULL;
        let covers = match setup.bug? {
            LeaseBug::DenialCoversLess => at < told.until,
            LeaseBug::DenialOutlives => at < told.at + told.wait,
            _ => false,
        };
        covers.then_some(HolderStep::Deny(decision))
    }
}

impl Store {
    pub(super) fn plant_forgetting(&mut self, setup: &Setup, at: Timestamp) {
        let limit = self.authority.limit();
        let state = &mut self.primary.account.state;
        let quarter = limit.period() / 4;
        let ahead =
            matches!(state, State::Count(count) if count.window > window_of(limit, &State::default(), at));
        let forgets = setup.has(LeaseBug::StateForgottenEarly) && at.since(self.written_at) > quarter;
        if forgets || (ahead && setup.has(LeaseBug::WindowMovesBack)) {
            *state = State::default();
        }
        self.written_at = at;
    }
}

pub(super) fn lend_from(
    setup: &Setup,
    authority: &Authority,
    account: &mut Account,
    want: Want,
    at: Timestamp,
) -> Loan {
    let loan = account.lend(authority, want, at);
    if setup.has(LeaseBug::LendsMoreThanIsLeft) && loan.granted > 0 {
        return Loan { granted: want.wants, ..loan };
    }
    loan
}

pub(super) fn take_back_to(
    setup: &Setup,
    authority: &Authority,
    account: &mut Account,
    (id, back): (ReturnId, Return),
    at: Timestamp,
) {
    if setup.has(LeaseBug::ReturnCountedTwice) {
        return authority.take_back(&mut account.state, back, at);
    }
    if setup.has(LeaseBug::ReturnIntoAnotherWindow) {
        let mark = authority.limit().mark(&account.state, at);
        return account.take_back(authority, id, Return { epoch: Epoch(mark.0), ..back }, at);
    }
    if setup.has(LeaseBug::RollingReturned) {
        let limit = *authority.limit();
        let mark = limit.mark(&account.state, at);
        return limit.refund(&mut account.state, mark, back.units, at);
    }
    account.take_back(authority, id, back, at);
}

pub(super) fn seeded_plan(setup: &Setup) -> HolderOptions {
    let mut plan = setup.plan;
    if setup.has(LeaseBug::NoDriftMargin) {
        (plan.margin.holder_ppm, plan.margin.authority_ppm) = (0, 0);
    }
    if setup.has(LeaseBug::CoarseClockTrusted) {
        plan.margin.slack = Duration::ZERO;
    }
    plan
}
