//! Assumptions removed one at a time at the boundary between a driver and the machine: in its inputs, or in
//! the use of its outputs.

use throttlekit_core::Timestamp;
use throttlekit_core::lease::{Epoch, Loan, LocalLease, PlainWord, Return};

/// A bug of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seam {
    /// No bug.
    Sound,
    /// Units expire when the driver's own clock shows the instant at which the store's window ends.
    WallClock,
    /// The life of units is counted from the arrival of the reply.
    ReplyAnchored,
    /// A grant is credited once for each waiting caller.
    CreditPerWaiter,
    /// The driver omits the window that units belong to.
    NoEpoch,
    /// The clock is read before the units are taken.
    ClockReadFirst,
    /// Returned units are accepted every time they arrive.
    ReturnTwice,
    /// The limit is promised although the store forgets what it lent.
    Unfenced,
}

impl Seam {
    /// Returns the loan that the driver hands to the machine in place of the store's.
    pub(super) fn loan(self, loan: Loan, sent: Timestamp, now: Timestamp) -> Loan {
        match self {
            Self::WallClock => Loan { lives: Some(loan.decision.reset_at.since(sent)), ..loan },
            Self::ReplyAnchored => Loan { lives: loan.lives.map(|lives| lives + now.since(sent)), ..loan },
            Self::NoEpoch => Loan { epoch: Epoch::default(), ..loan },
            _ => loan,
        }
    }

    /// Returns the return that the store receives in place of the one that was sent.
    pub(super) fn taken_back(self, back: Return, present: Epoch) -> Return {
        if self == Self::NoEpoch { Return { epoch: present, ..back } } else { back }
    }

    /// Credits the local lease again after a grant that `waiting` callers wait for.
    pub(super) fn credit_again(self, local_lease: &LocalLease<PlainWord>, loan: Loan, waiting: usize) {
        if self == Self::CreditPerWaiter {
            (1..waiting).for_each(|_| local_lease.fill(loan.granted, local_lease.until(), true));
        }
    }

    /// Returns `true` if the bound does not include the units that a failover lost.
    pub(super) fn forgives_nothing(self) -> bool {
        self == Self::Unfenced
    }
}
