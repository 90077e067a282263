//! Fair shares as plain caps: nobody may use more than its part.

use core::time::Duration;

use super::current_window::CurrentWindow;
use super::{Member, Roster, Weight};
use crate::rate::{Cadence, LimitError, checked_units};
use crate::{Cost, Decision, Retry, Timestamp};

/// `limit` units in each window, and for each tenant a cap of `max(1, ⌊w·limit/W⌋)`, W the weights of those who have
/// asked in the window. With equal weights that is `⌊limit/active⌋`.
///
/// Simpler than [`Escrow`](super::Escrow), and less: what rounding leaves is nobody's, nothing is reserved, and what
/// absent tenants leave goes to whoever came first, while caps were higher. The whole never passes the limit.
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

    /// Moves to `now`. True if a new window has begun: then nobody has joined it yet, and older handles are void.
    ///
    /// A clock that steps back into the window before stays in its window. One that steps back further is in the window
    /// that it shows, of which then as much is left as was when it was left last; whoever asks shares that anew.
    pub fn advance(&mut self, now: Timestamp) -> bool {
        let Some(before) = self.turn.advance(now, self.roster.used()) else { return false };
        self.roster.begin(before);
        true
    }

    /// Answers an ask, and charges it if allowed. An ask of nothing changes nothing.
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

    /// Takes units that a tenant has used and did not ask for, also beyond its cap and beyond what is left. What was
    /// charged and not used is [refunded](Roster::refund) on the roster.
    pub fn owe(&mut self, member: Member, weight: Weight, units: Cost) {
        self.roster.set_weight(member, weight);
        self.roster.spend(member, units);
    }

    /// When the window ends and everything is free again.
    pub fn ends_at(&self) -> Timestamp {
        self.turn.end()
    }

    /// How long a window is; a calendar month counts as 31 days.
    pub fn period(&self) -> Duration {
        self.turn.period()
    }

    /// Who shares the window.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// The same, to join, to leave, or to give the place of whoever has [used least](Roster::least_used) to a newcomer.
    pub fn roster_mut(&mut self) -> &mut Roster {
        &mut self.roster
    }
}
