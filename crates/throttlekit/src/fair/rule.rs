//! The rules for sharing a budget.

use std::time::Duration;

use throttlekit_core::fair::{Escrow, FairShare, GiveBack, Member, Roster, Weight};
use throttlekit_core::rate::{Budget, LimitError};
use throttlekit_core::{Decision, Timestamp};

/// Rule by which tenants share a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FairRule {
    /// By weight, with reserved and borrowable units: [`Escrow`].
    #[default]
    Escrow,
    /// The same, and tenants that go quiet in a window give back what is reserved for them.
    GiveBack(GiveBack),
    /// By a cap for each tenant, with nothing reserved and nothing borrowed: [`FairShare`].
    Cap,
}

impl FairRule {
    /// Returns the rule over a budget, before its first window.
    pub(super) fn start(self, budget: Budget) -> Result<Sharing, LimitError> {
        let (units, cadence) = (budget.units(), budget.cadence());
        Ok(match self {
            Self::Escrow => Sharing::Escrow(Escrow::new(units, cadence)?),
            Self::GiveBack(by) => Sharing::Escrow(Escrow::new(units, cadence)?.give_back(by)),
            Self::Cap => Sharing::Cap(FairShare::new(units, cadence)?),
        })
    }
}

/// A rule and the state of its window.
#[derive(Clone, Debug)]
pub(super) enum Sharing {
    Escrow(Escrow),
    Cap(FairShare),
}

/// Runs the same expression for either rule.
macro_rules! either {
    ($self:ident, $rule:ident => $does:expr) => {
        match $self {
            Sharing::Escrow($rule) => $does,
            Sharing::Cap($rule) => $does,
        }
    };
}

impl Sharing {
    /// Advances to `now`. Returns `true` if a new window has begun and no tenant has joined it yet.
    pub(super) fn advance(&mut self, now: Timestamp) -> bool {
        either!(self, rule => rule.advance(now))
    }

    pub(super) fn check(&mut self, member: Member, weight: Weight, cost: u64) -> Decision {
        either!(self, rule => rule.check(member, weight, cost))
    }

    /// Returns the decision for a request of cost zero by an inactive tenant that would join.
    pub(super) fn peek_newcomer(&mut self, weight: Weight) -> Decision {
        match self {
            Self::Escrow(rule) => rule.peek_newcomer(weight),
            Self::Cap(rule) => {
                let member = rule.roster_mut().join(weight);
                let decision = rule.check(member, weight, 0);
                rule.roster_mut().leave(member);
                decision
            }
        }
    }

    /// Like `peek_newcomer`, for a tenant that would take over the entry of another.
    pub(super) fn peek_place(&mut self, weight: Weight) -> Option<Decision> {
        match self {
            Self::Escrow(rule) => rule.peek_place(weight),
            Self::Cap(rule) => {
                let member = rule.roster_mut().least_used()?;
                let own = rule.roster().weight(member)?;
                rule.roster_mut().set_weight(member, weight);
                let decision = rule.check(member, weight, 0);
                rule.roster_mut().set_weight(member, own);
                Some(decision)
            }
        }
    }

    pub(super) fn join(&mut self, weight: Weight) -> Member {
        match self {
            Self::Escrow(rule) => rule.join(weight),
            Self::Cap(rule) => rule.roster_mut().join(weight),
        }
    }

    /// Returns the member whose entry a new tenant takes over, including its use.
    pub(super) fn take_place(&mut self, weight: Weight) -> Option<Member> {
        match self {
            Self::Escrow(rule) => rule.take_place(weight),
            Self::Cap(rule) => rule.roster_mut().least_used(),
        }
    }

    pub(super) fn leave(&mut self, member: Member) {
        match self {
            Self::Escrow(rule) => rule.leave(member),
            Self::Cap(rule) => _ = rule.roster_mut().leave(member),
        }
    }

    /// Returns units that a member was charged in this window.
    pub(super) fn refund(&mut self, member: Member, units: u64) {
        match self {
            Self::Escrow(rule) => rule.refund(member, units),
            Self::Cap(rule) => rule.roster_mut().refund(member, units),
        }
    }

    /// Charges units that a member used without a request.
    pub(super) fn owe(&mut self, member: Member, weight: Weight, units: u64) {
        either!(self, rule => rule.owe(member, weight, units));
    }

    /// Returns the end of the window.
    pub(super) fn ends_at(&self) -> Timestamp {
        either!(self, rule => rule.ends_at())
    }

    /// Returns the members that share the window.
    #[inline]
    pub(super) fn roster(&self) -> &Roster {
        either!(self, rule => rule.roster())
    }

    pub(super) fn roster_mut(&mut self) -> &mut Roster {
        either!(self, rule => rule.roster_mut())
    }

    pub(super) fn period(&self) -> Duration {
        either!(self, rule => rule.period())
    }
}
