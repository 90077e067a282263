//! The rules by which a budget can be shared.

use std::time::Duration;

use throttlekit_core::fair::{Escrow, FairShare, Member, Roster, Weight};
use throttlekit_core::{Cost, Decision, Timestamp};

/// How a budget is shared.
#[derive(Clone, Debug)]
pub enum FairRule {
    /// By weight, with what is reserved and what may be borrowed.
    Escrow(Escrow),
    /// By a cap for each.
    Share(FairShare),
}

impl From<Escrow> for FairRule {
    fn from(rule: Escrow) -> Self {
        Self::Escrow(rule)
    }
}

impl From<FairShare> for FairRule {
    fn from(rule: FairShare) -> Self {
        Self::Share(rule)
    }
}

/// Does the same with whichever rule it is.
macro_rules! either {
    ($self:ident, $rule:ident => $does:expr) => {
        match $self {
            FairRule::Escrow($rule) => $does,
            FairRule::Share($rule) => $does,
        }
    };
}

impl FairRule {
    /// Moves to `now`. True if a new window has begun and nobody has joined it yet.
    pub(super) fn advance(&mut self, now: Timestamp) -> bool {
        either!(self, rule => rule.advance(now))
    }

    pub(super) fn check(&mut self, member: Member, weight: Weight, cost: Cost) -> Decision {
        either!(self, rule => rule.check(member, weight, cost))
    }

    /// What an ask of nothing would say to a tenant that is not active and would join.
    pub(super) fn peek_newcomer(&mut self, weight: Weight) -> Decision {
        match self {
            Self::Escrow(rule) => rule.peek_newcomer(weight),
            Self::Share(rule) => {
                let member = rule.roster_mut().join(weight);
                let decision = rule.check(member, weight, 0);
                rule.roster_mut().leave(member);
                decision
            }
        }
    }

    /// The same to one that would take the place of another.
    pub(super) fn peek_place(&mut self, weight: Weight) -> Option<Decision> {
        match self {
            Self::Escrow(rule) => rule.peek_place(weight),
            Self::Share(rule) => {
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
            Self::Share(rule) => rule.roster_mut().join(weight),
        }
    }

    /// Whose place a newcomer takes; it takes its use with it.
    pub(super) fn take_place(&mut self, weight: Weight) -> Option<Member> {
        match self {
            Self::Escrow(rule) => rule.take_place(weight),
            Self::Share(rule) => rule.roster_mut().least_used(),
        }
    }

    pub(super) fn leave(&mut self, member: Member) {
        match self {
            Self::Escrow(rule) => rule.leave(member),
            Self::Share(rule) => _ = rule.roster_mut().leave(member),
        }
    }

    /// Hands units back that a member was charged in this window.
    pub(super) fn refund(&mut self, member: Member, units: Cost) {
        match self {
            Self::Escrow(rule) => rule.refund(member, units),
            Self::Share(rule) => rule.roster_mut().refund(member, units),
        }
    }

    /// Takes units that a member has used and did not ask for.
    pub(super) fn owe(&mut self, member: Member, weight: Weight, units: Cost) {
        either!(self, rule => rule.owe(member, weight, units));
    }

    /// When the window ends.
    pub(super) fn ends_at(&self) -> Timestamp {
        either!(self, rule => rule.ends_at())
    }

    /// Who shares the window.
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
