//! Fair shares as plain caps: no tenant may use more than its part.

use core::time::Duration;

use super::current_window::CurrentWindow;
use super::{Member, Roster, Weight};
use crate::rate::{Cadence, LimitError, checked_units};
use crate::{Cost, Decision, Retry, Timestamp};

/// `limit` units in each window, and for each tenant a cap of `max(1, ⌊w·limit/W⌋)`, W the weights of those that have
/// sent requests in the window. With equal weights that is `⌊limit/active⌋`.
///
/// Simpler than [`Escrow`](super::Escrow), and weaker: what rounding leaves is lost, nothing is reserved, and what
/// absent tenants leave goes to the first tenants, while caps were higher. The total never passes the limit.
#[derive(Clone, Debug)]
pub struct FairShare {
    turn: CurrentWindow,
    roster: Roster,
}

impl FairShare {
    /// `limit` units in each window of the cadence.
    pub fn new(limit: u64, cadence: Cadence) -> Result<Self, LimitError> {
        Ok(Self { turn: CurrentWindow::new(cadence)?, roster: Roster::new(checked_units(limit)?) })
    }

    /// Moves to `now`. True if a new window has begun: then no tenant has joined it yet, and older handles are invalid.
    ///
    /// A clock that steps back into the window before stays in its window. One that steps back further is in the window
    /// that it shows, with as much left as when it was left last; the tenants that send requests share that again.
    pub fn advance(&mut self, now: Timestamp) -> bool {
        let Some(before) = self.turn.advance(now, self.roster.used()) else { return false };
        self.roster.begin(before);
        true
    }

    /// Decides a request, and charges it if allowed. A cost of zero changes nothing.
    pub fn check(&mut self, member: Member, weight: Weight, cost: Cost) -> Decision {
        if cost > 0 {
            self.roster.set_weight(member, weight);
        }
        let cap = self.roster.guarantee(member).max(1);
        let room = cap.saturating_sub(self.roster.used_by(member)).min(self.roster.left());
        let allowed = cost <= room;
        if allowed {
            self.roster.spend(member, cost);
        }
        let retry_after = match allowed {
            true => Retry::Now,
            false if cost > self.roster.limit() => Retry::Never,
            false => Retry::after(self.turn.wait()),
        };
        let remaining = if allowed { room - cost } else { room };
        Decision { allowed, limit: cap, remaining, reset_at: self.turn.end(), retry_after }
    }

    /// Charges units that a tenant has used and did not request, also beyond its cap and beyond what is left. Units
    /// that were charged and not used are [refunded](Roster::refund) on the roster.
    pub fn owe(&mut self, member: Member, weight: Weight, units: Cost) {
        self.roster.set_weight(member, weight);
        self.roster.spend(member, units);
    }

    /// Returns when the window ends and everything is free again.
    pub fn ends_at(&self) -> Timestamp {
        self.turn.end()
    }

    /// Returns the length of a window; a calendar month counts as 31 days.
    pub fn period(&self) -> Duration {
        self.turn.period()
    }

    /// Returns the members of the window.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// The same, mutable, to join, to leave, or to replace the [least used](Roster::least_used) member.
    pub fn roster_mut(&mut self) -> &mut Roster {
        &mut self.roster
    }
}
