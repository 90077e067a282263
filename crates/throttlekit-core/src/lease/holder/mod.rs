//! The holder: the side that spends. Decides when to request units, how to use them, and which callers to wake.

use core::time::Duration;

use super::local_lease::{LocalLease, UNITS_HELD_MAX, Word};
use super::{Epoch, Loan, Margin, Return, Spend, Term, Want};
use crate::{Cost, Decision, Retry, Timestamp};

/// Configuration of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HolderOptions {
    /// Lifetime of lent units, as configured at the authority.
    pub term: Term,
    /// Error bounds of the clocks.
    pub margin: Margin,
    /// Largest number of units it requests and therefore holds, unless one request costs more.
    pub lease_max: Cost,
    /// See [`Want::share`].
    pub share: u64,
    /// Longest time for which a denial is cached, since others may return units.
    pub denial_max: Duration,
}

/// One key on one node. It has at most one pending request to the authority.
///
/// A driver tries [`LocalLease::spend`] first and calls the holder when that fails, one caller at a time:
///
/// ```text
/// ask ── Spent ──► allow                                  (a unit came meanwhile)
///     ── Deny ───► deny: a denial at this cost still holds
///     ── Wait ───► poll_request ──► send ──► handle_reply | handle_failure ──► everyone who waits asks again
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    plan: HolderOptions,
    /// The window of the units in the local lease.
    epoch: Epoch,
    flight: Option<Flight>,
    /// Lent while earlier units that expire sooner were still there: spent after those.
    next: Option<Batch>,
    denial: Option<Denial>,
    /// Total cost of the waiting callers, and the cheapest of them. Zero if none wait.
    waiting: Cost,
    cheapest: Cost,
    /// Cost of the callers that the last reply woke and could not serve. They are about to retry.
    unserved: Cost,
    /// Requested ahead of need.
    low: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flight {
    id: u64,
    sent: Timestamp,
    /// A caller's request of this cost could not be served when it was sent.
    short_of: Cost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Batch {
    units: Cost,
    until: Timestamp,
}

/// A cached denial: requests of this cost or more are denied until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Denial {
    cost: Cost,
    until: Timestamp,
    /// Time at which the request would pass, as reported to callers.
    passes_at: Timestamp,
    decision: Decision,
}

/// Next step for a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderStep {
    /// It is served, and `left` units remain here.
    Spent {
        /// Units left in the local lease.
        left: Cost,
    },
    /// The authority denied this cost, and the denial still holds.
    Deny(Decision),
    /// It waits for a reply, then retries.
    Wait,
}

/// Request to the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HolderRequest {
    /// Assigned by the driver; the reply must carry it.
    pub id: u64,
    /// Units to request.
    pub want: Want,
}

/// Effect of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Its units can be spent.
    Credited,
    /// The authority had too few.
    Denied,
    /// It lent units that had expired before they arrived.
    Lapsed,
    /// No pending request matches it: its units, if any, are lost until their window ends.
    Late,
}

impl Holder {
    /// Creates a holder without units.
    pub fn new(plan: HolderOptions) -> Self {
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

    /// Creates another holder without units, with the same plan.
    pub fn fresh(&self) -> Self {
        Self::new(self.plan)
    }

    /// Handles a caller that the local lease could not serve. A cost of zero is served, and reports what is left.
    ///
    /// The clock is read after units are taken out, as in [`LocalLease::spend`]: a thread that slept between reading it and
    /// calling this would spend expired units.
    pub fn handle_ask<W: Word>(
        &mut self,
        local_lease: &LocalLease<W>,
        cost: Cost,
        now: impl Fn() -> Timestamp,
    ) -> HolderStep {
        if cost == 0 {
            return HolderStep::Spent { left: local_lease.left(now()) };
        }
        if let Spend::Spent { left } = local_lease.spend(cost, &now) {
            return HolderStep::Spent { left };
        }
        if let Some(batch) = self.next.take() {
            local_lease.fill(batch.units, batch.until, false);
            if let Spend::Spent { left } = local_lease.spend(cost, &now) {
                return HolderStep::Spent { left };
            }
        }
        if let Some(decision) = self.denied(cost, now()) {
            return HolderStep::Deny(decision);
        }
        self.cheapest = if self.waiting == 0 { cost } else { self.cheapest.min(cost) };
        self.waiting = self.waiting.saturating_add(cost);
        HolderStep::Wait
    }

    /// Returns the decision for a request that a cached denial still covers: one that costs as much or more.
    pub fn denied(&self, cost: Cost, now: Timestamp) -> Option<Decision> {
        let denial = self.denial.filter(|denial| cost >= denial.cost && now < denial.until)?;
        let retry_after = match denial.decision.retry_after {
            Retry::After(_) => Retry::after(denial.passes_at.since(now)),
            other => other,
        };
        Some(Decision { retry_after, ..denial.decision })
    }

    /// Records that the local lease runs low: a request should be sent before it is empty.
    pub fn handle_low(&mut self, now: Timestamp) {
        self.low = self.next.is_none() && self.denied(Cost::MAX, now).is_none();
    }

    /// Returns the request to send now, if one is needed and none is pending. `batch` is the number of units to fetch;
    /// any number is safe.
    pub fn poll_request<W: Word>(
        &mut self,
        local_lease: &LocalLease<W>,
        id: u64,
        batch: Cost,
        now: Timestamp,
    ) -> Option<HolderRequest> {
        if self.flight.is_some() || (self.waiting == 0 && !self.low) {
            return None;
        }
        self.low = false;
        let left = local_lease.left(now);
        let room = self.plan.lease_max.min(UNITS_HELD_MAX).saturating_sub(left);
        // It may have run low while a request was pending whose reply has fixed that.
        if self.waiting == 0 && (self.next.is_some() || batch <= left || room == 0) {
            return None;
        }
        let (short_of, least) = match self.plan.term {
            _ if self.waiting == 0 => (left + 1, 1),
            // Units that expire at another time do not add up with those in the local lease.
            Term::Rolling(_) => (self.cheapest, self.cheapest),
            Term::Window | Term::Carry => (self.cheapest, self.cheapest.saturating_sub(left).max(1)),
        };
        let wants = batch.max(self.waiting).max(self.unserved).min(room).max(least);
        self.flight = Some(Flight { id, sent: now, short_of });
        self.unserved = 0;
        Some(HolderRequest { id, want: Want { wants, least, share: self.plan.share } })
    }

    /// Handles a reply. Units are credited here and nowhere else; then every waiting caller retries.
    pub fn handle_reply<W: Word>(
        &mut self,
        local_lease: &LocalLease<W>,
        id: u64,
        loan: Loan,
        now: Timestamp,
    ) -> Reply {
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
        self.credit(local_lease, loan, until, now);
        Reply::Credited
    }

    /// Caches a denial of `cost`, requested at `sent`: requests that cost as much are denied until it ends.
    pub fn handle_denial(&mut self, cost: Cost, decision: Decision, sent: Timestamp) {
        let passes_at = decision.retry_after.wait().map_or(Timestamp::MAX, |wait| sent + wait);
        let until = passes_at.min(sent + self.plan.denial_max);
        self.denial = Some(Denial { cost, until, passes_at, decision });
    }

    fn credit<W: Word>(&mut self, local_lease: &LocalLease<W>, loan: Loan, until: Timestamp, now: Timestamp) {
        match self.plan.term {
            Term::Rolling(_) if local_lease.left(now) > 0 => {
                self.next = Some(Batch { units: loan.granted, until });
            }
            Term::Rolling(_) => local_lease.fill(loan.granted, until, false),
            // Units of one window expire with it, and the newest reply has the best estimate of when. Expired ones stay
            // expired: they were not counted when these were requested.
            Term::Window => {
                let keep = loan.epoch == self.epoch && local_lease.left(now) > 0;
                local_lease.fill(loan.granted, until, keep);
            }
            Term::Carry => local_lease.fill(loan.granted, until, true),
        }
        self.epoch = loan.epoch;
    }

    /// Takes back units that were spent and not used, of the window in the local lease: they are spent again, or
    /// returned with the rest, and expire with it. Units of any other term lapse.
    pub fn handle_refund<W: Word>(&self, local_lease: &LocalLease<W>, units: Cost) {
        if self.plan.term == Term::Window && self.epoch != Epoch::NONE {
            local_lease.refund(units);
        }
    }

    /// Handles a request whose reply will not come, or does not count. Every waiting caller is notified.
    pub fn handle_failure(&mut self, id: u64) {
        self.land(id);
    }

    fn land(&mut self, id: u64) -> Option<Flight> {
        let flight = self.flight.take_if(|flight| flight.id == id)?;
        (self.waiting, self.cheapest) = (0, 0);
        Some(flight)
    }

    /// Returns the units to give back for a key without requests: all of them, if they belong to a window.
    pub fn poll_return<W: Word>(&mut self, local_lease: &LocalLease<W>, now: Timestamp) -> Option<Return> {
        if self.plan.term != Term::Window || self.flight.is_some() || self.epoch == Epoch::NONE {
            return None;
        }
        let units = local_lease.empty(now);
        (units > 0).then_some(Return { epoch: self.epoch, units })
    }

    /// Returns when to poll again without an event: when the units in the local lease expire, or a denial ends.
    pub fn next_deadline<W: Word>(&self, local_lease: &LocalLease<W>) -> Option<Timestamp> {
        let dies = (local_lease.units() > 0).then(|| local_lease.until());
        let ends = self.denial.map(|denial| denial.until);
        dies.into_iter().chain(ends).filter(|&at| at < Timestamp::MAX).min()
    }

    /// Checks whether a request is pending.
    pub fn is_asking(&self) -> bool {
        self.flight.is_some()
    }

    /// Returns the ID of the pending request.
    pub fn asking(&self) -> Option<u64> {
        self.flight.map(|flight| flight.id)
    }
}

#[cfg(test)]
mod tests;
