//! Assumptions, removed one at a time where a driver meets the machine: in what it hands in, or does with what comes out.

use throttlekit_core::Timestamp;
use throttlekit_core::lease::{Epoch, Loan, LocalLease, PlainWord, Return};

/// What a driver gets wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seam {
    /// Nothing.
    Sound,
    /// It lets units die when its own clock shows the instant at which the store says that the window ends.
    WallClock,
    /// It counts the life of units from the arrival of the reply.
    ReplyAnchored,
    /// It credits a grant once for each caller that waits for it.
    CreditPerWaiter,
    /// It does not say from which window units are.
    NoEpoch,
    /// It reads the clock, and then takes units out.
    ClockReadFirst,
    /// It takes units back however often they come.
    ReturnTwice,
    /// It promises the limit though the store forgets what it lent.
    Unfenced,
}

impl Seam {
    /// What it hands to the machine in place of what the store lent.
    pub(super) fn loan(self, loan: Loan, sent: Timestamp, now: Timestamp) -> Loan {
        match self {
            Self::WallClock => Loan { lives: Some(loan.decision.reset_at.since(sent)), ..loan },
            Self::ReplyAnchored => Loan { lives: loan.lives.map(|lives| lives + now.since(sent)), ..loan },
            Self::NoEpoch => Loan { epoch: Epoch::default(), ..loan },
            _ => loan,
        }
    }

    /// What the store is told that was sent back.
    pub(super) fn taken_back(self, back: Return, present: Epoch) -> Return {
        if self == Self::NoEpoch { Return { epoch: present, ..back } } else { back }
    }

    /// What it does to the local lease when a grant was credited that `waiting` callers wait for.
    pub(super) fn credit_again(self, local_lease: &LocalLease<PlainWord>, loan: Loan, waiting: usize) {
        if self == Self::CreditPerWaiter {
            (1..waiting).for_each(|_| local_lease.fill(loan.granted, local_lease.until(), true));
        }
    }

    /// Whether what a failover lost is not allowed for.
    pub(super) fn forgives_nothing(self) -> bool {
        self == Self::Unfenced
    }
}
