//! The side that spends: when to ask, what to do with what comes, and whom to tell.

use core::time::Duration;

use super::local_lease::{Purse, UNITS_HELD_MAX, Word};
use super::{Epoch, Loan, Margin, Return, Spend, Term, Want};
use crate::{Cost, Decision, Retry, Timestamp};

/// What a holder is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// How long lent units live, as its authority has it.
    pub term: Term,
    /// What the clocks may be wrong by.
    pub margin: Margin,
    /// The most units it asks for and so the most it holds, unless one ask costs more.
    pub lease_max: Cost,
    /// See [`Want::share`].
    pub share: u64,
    /// A denial is remembered no longer than this, since others may give units back.
    pub denial_max: Duration,
}

/// One key on one node. It has at most one request under way.
///
/// A driver tries [`Purse::spend`] first and comes here when that fails, one caller at a time:
///
/// ```text
/// ask ── Spent ──► allow                                  (a unit came meanwhile)
///     ── Deny ───► deny: a denial at this cost still holds
///     ── Wait ───► poll_request ──► send ──► handle_reply | handle_failure ──► everyone who waits asks again
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    plan: Plan,
    /// The window of the units in the purse.
    epoch: Epoch,
    flight: Option<Flight>,
    /// Lent while earlier units that die sooner were still there: spent after those.
    next: Option<Batch>,
    denial: Option<Denial>,
    /// What those who wait would cost together, and the cheapest of them. None wait: zero.
    waiting: Cost,
    cheapest: Cost,
    /// Of those whom the last reply woke, what it could not serve. They are about to ask again.
    unserved: Cost,
    /// Asked for ahead of need.
    low: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flight {
    id: u64,
    sent: Timestamp,
    /// An ask of this cost could not be served when it was sent.
    short_of: Cost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Batch {
    units: Cost,
    until: Timestamp,
}

/// Asks of this cost or more are denied until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Denial {
    cost: Cost,
    until: Timestamp,
    /// When the ask would pass, which callers are told.
    passes_at: Timestamp,
    decision: Decision,
}

/// What to do with a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is served, and as many units are left here.
    Spent {
        /// Units left in the purse.
        left: Cost,
    },
    /// The authority denied this cost, and that still holds.
    Deny(Decision),
    /// It waits for a reply, then asks again.
    Wait,
}

/// What to send to the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Given by the driver; the reply must name it.
    pub id: u64,
    /// What to ask for.
    pub want: Want,
}

/// What a reply did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Its units can be spent.
    Credited,
    /// The authority had too few.
    Denied,
    /// It lent units that had died before they arrived.
    Lapsed,
    /// Nobody waits for it any more: its units, if any, are lost until their window ends.
    Late,
}

impl Holder {
    /// A holder of nothing.
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            epoch: Epoch::default(),
            flight: None,
            next: None,
            denial: None,
            waiting: 0,
            cheapest: 0,
            unserved: 0,
            low: false,
        }
    }

    /// Another holder of nothing by the same plan.
    pub fn fresh(&self) -> Self {
        Self::new(self.plan)
    }

    /// A caller that the purse could not serve. One that asks for nothing is served, and told what is left.
    ///
    /// The clock is read after units are taken out, as in [`Purse::spend`]: a thread that slept between reading it and
    /// coming here would spend units that have died.
    pub fn handle_ask<W: Word>(&mut self, purse: &Purse<W>, cost: Cost, now: impl Fn() -> Timestamp) -> Turn {
        if cost == 0 {
            return Turn::Spent { left: purse.left(now()) };
        }
        if let Spend::Spent { left } = purse.spend(cost, &now) {
            return Turn::Spent { left };
        }
        if let Some(batch) = self.next.take() {
            purse.fill(batch.units, batch.until, false);
            if let Spend::Spent { left } = purse.spend(cost, &now) {
                return Turn::Spent { left };
            }
        }
        if let Some(decision) = self.denied(cost, now()) {
            return Turn::Deny(decision);
        }
        self.cheapest = if self.waiting == 0 { cost } else { self.cheapest.min(cost) };
        self.waiting = self.waiting.saturating_add(cost);
        Turn::Wait
    }

    /// The answer to an ask that a denial still covers: one that costs as much or more.
    pub fn denied(&self, cost: Cost, now: Timestamp) -> Option<Decision> {
        let denial = self.denial.filter(|denial| cost >= denial.cost && now < denial.until)?;
        let retry_after = match denial.decision.retry_after {
            Retry::After(_) => Retry::after(denial.passes_at.since(now)),
            other => other,
        };
        Some(Decision { retry_after, ..denial.decision })
    }

    /// The purse runs low: a request should go out before it is empty.
    pub fn handle_low(&mut self, now: Timestamp) {
        self.low = self.next.is_none() && self.denied(Cost::MAX, now).is_none();
    }

    /// The request to send now, if one is needed and none is under way. `batch` says how many units would be
    /// good to fetch; any number is safe.
    pub fn poll_request<W: Word>(
        &mut self,
        purse: &Purse<W>,
        id: u64,
        batch: Cost,
        now: Timestamp,
    ) -> Option<Request> {
        if self.flight.is_some() || (self.waiting == 0 && !self.low) {
            return None;
        }
        self.low = false;
        let left = purse.left(now);
        let room = self.plan.lease_max.min(UNITS_HELD_MAX).saturating_sub(left);
        // It may have run low while a request was under way whose reply has put that right.
        if self.waiting == 0 && (self.next.is_some() || batch <= left || room == 0) {
            return None;
        }
        let (short_of, least) = match self.plan.term {
            _ if self.waiting == 0 => (left + 1, 1),
            // Units that die at another time do not add up with those in the purse.
            Term::Rolling(_) => (self.cheapest, self.cheapest),
            Term::Window | Term::Carry => (self.cheapest, self.cheapest.saturating_sub(left).max(1)),
        };
        let wants = batch.max(self.waiting).max(self.unserved).min(room).max(least);
        self.flight = Some(Flight { id, sent: now, short_of });
        self.unserved = 0;
        Some(Request { id, want: Want { wants, least, share: self.plan.share } })
    }

    /// A reply. Units are credited here and nowhere else; then everyone who waits asks again.
    pub fn handle_reply<W: Word>(&mut self, purse: &Purse<W>, id: u64, loan: Loan, now: Timestamp) -> Reply {
        let woken = self.waiting;
        let Some(flight) = self.land(id) else { return Reply::Late };
        if loan.granted == 0 {
            self.handle_denial(flight.short_of, loan.decision, flight.sent);
            return Reply::Denied;
        }
        self.denial = None;
        self.unserved = woken.saturating_sub(loan.granted);
        let until = loan.lives.map_or(Timestamp::MAX, |lives| self.plan.margin.deadline(flight.sent, lives));
        if until <= now {
            return Reply::Lapsed;
        }
        self.credit(purse, loan, until, now);
        Reply::Credited
    }

    /// An ask of `cost`, sent then, was denied: so is every one that costs as much, for as long as that says.
    pub fn handle_denial(&mut self, cost: Cost, decision: Decision, sent: Timestamp) {
        let passes_at = decision.retry_after.wait().map_or(Timestamp::MAX, |wait| sent + wait);
        let until = passes_at.min(sent + self.plan.denial_max);
        self.denial = Some(Denial { cost, until, passes_at, decision });
    }

    fn credit<W: Word>(&mut self, purse: &Purse<W>, loan: Loan, until: Timestamp, now: Timestamp) {
        match self.plan.term {
            Term::Rolling(_) if purse.left(now) > 0 => {
                self.next = Some(Batch { units: loan.granted, until });
            }
            Term::Rolling(_) => purse.fill(loan.granted, until, false),
            // Units of one window die with it, and the newest reply knows best when that is. Dead ones stay dead: they
            // were not counted when these were asked for.
            Term::Window => {
                let keep = loan.epoch == self.epoch && purse.left(now) > 0;
                purse.fill(loan.granted, until, keep);
            }
            Term::Carry => purse.fill(loan.granted, until, true),
        }
        self.epoch = loan.epoch;
    }

    /// Units that were spent here and not used, of the window whose units are in the purse: they are spent again, or go
    /// back with the rest, and die with it. Only units of a window have one to go back to; of any other term they lapse.
    pub fn handle_refund<W: Word>(&self, purse: &Purse<W>, units: Cost) {
        if self.plan.term == Term::Window && self.epoch != Epoch::NONE {
            purse.refund(units);
        }
    }

    /// No reply will come, or none that counts. Everyone who waits is told.
    pub fn handle_failure(&mut self, id: u64) {
        self.land(id);
    }

    fn land(&mut self, id: u64) -> Option<Flight> {
        let flight = self.flight.take_if(|flight| flight.id == id)?;
        (self.waiting, self.cheapest) = (0, 0);
        Some(flight)
    }

    /// What to give back of a key that nobody asks for: all of it, if it belongs to a window.
    pub fn poll_return<W: Word>(&mut self, purse: &Purse<W>, now: Timestamp) -> Option<Return> {
        if self.plan.term != Term::Window || self.flight.is_some() || self.epoch == Epoch::NONE {
            return None;
        }
        let units = purse.empty(now);
        (units > 0).then_some(Return { epoch: self.epoch, units })
    }

    /// When to look again though nothing has happened: when the units in the purse die, or a denial ends.
    pub fn next_deadline<W: Word>(&self, purse: &Purse<W>) -> Option<Timestamp> {
        let dies = (purse.units() > 0).then(|| purse.until());
        let ends = self.denial.map(|denial| denial.until);
        dies.into_iter().chain(ends).filter(|&at| at < Timestamp::MAX).min()
    }

    /// Whether a request is under way.
    pub fn is_asking(&self) -> bool {
        self.flight.is_some()
    }

    /// The request that is under way.
    pub fn asking(&self) -> Option<u64> {
        self.flight.map(|flight| flight.id)
    }
}

#[cfg(test)]
mod tests;
