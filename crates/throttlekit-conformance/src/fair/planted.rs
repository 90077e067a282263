//! Rules of sharing with a deliberate bug, to show that each law can fail.

use throttlekit_core::fair::Weight;
use throttlekit_core::{Cost, Decision, Retry, Timestamp};

use super::{Books, FairWorld, Shares};

/// What is wrong with a [`Planted`] rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Bug {
    CountedTwice,
    BorrowsAgain,
    NeverBorrows,
    OwnReserved,
    DividesFirst,
    WeightIgnored,
    ReserveUnder,
    ReserveOver,
    GuaranteeAboveAll,
    DenialCharged,
    DenialForgotten,
    WeightKept,
    WeightRefunds,
    EvictionRefunds,
    EvictionForgives,
    MostUsedLoses,
    LimitKept,
    WindowBack,
    StaysAhead,
    FreshOnReturn,
    ForgottenIsFresh,
    RemembersOneWindow,
    TenantsStay,
    QuietWhileDenied,
    NeverWakes,
    UseGivenBack,
    UseUncovered,
    PartEarly,
    PartLate,
    NanoEarly,
    NanoLate,
    RetryEarly,
    NeverAsWait,
    LeftAsRemaining,
    PlaceImagined,
    RefundOfAnyWindow,
    RefundForgotten,
    RefundStaysCovered,
}

/// A rule that walks over everyone, with one bug or with none.
#[derive(Clone, Debug)]
pub struct Planted {
    books: Books,
}

impl Planted {
    /// The rule of a world.
    pub fn new(world: &FairWorld, bug: Option<Bug>) -> Self {
        Self { books: Books::new(world, bug) }
    }

    fn answer(&self, place: usize, cost: Cost, allowed: bool, now: Timestamp) -> Decision {
        let (used, guarantee) = (self.books.at(place).used, self.books.guarantee(place));
        let charged = allowed && cost > 0;
        let remaining = match self.books.bug {
            Some(Bug::LeftAsRemaining) => self.books.left(),
            _ if charged => guarantee.saturating_sub(used).min(self.books.left()),
            _ => self.books.admissible(place),
        };
        let limit = if charged { guarantee.max(used) } else { guarantee.max(used + remaining) };
        let wait = self.books.end().since(now);
        let retry_after = match self.books.bug {
            _ if allowed => Retry::Now,
            Some(Bug::RetryEarly) => Retry::after(wait.saturating_sub(std::time::Duration::from_nanos(1))),
            Some(Bug::NeverAsWait) => Retry::after(wait),
            _ if cost > self.books.limit => Retry::Never,
            _ => Retry::after(wait),
        };
        Decision { allowed, limit, remaining, reset_at: self.books.end(), retry_after }
    }
}

impl Shares for Planted {
    fn ask(&mut self, tenant: usize, weight: Weight, cost: Cost, now: Timestamp) -> Decision {
        self.books.advance(now);
        let (before, known) = (self.books.clone(), self.books.place_of(tenant));
        if cost == 0 {
            // An ask of nothing: a stranger is seated for a moment.
            if self.books.bug == Some(Bug::PlaceImagined) {
                self.books.places_max = usize::MAX;
            }
            let place = known.unwrap_or_else(|| self.books.find_place(tenant, weight.get()));
            let answer = self.answer(place, 0, true, now);
            self.books = before;
            return answer;
        }
        let place = self.books.seat(tenant, weight.get());
        let allowed = self.books.admits(place, cost);
        if allowed || self.books.bug == Some(Bug::DenialCharged) {
            self.books.charge(place, cost);
        }
        let answer = self.answer(place, cost, allowed, now);
        if !allowed && known.is_none() && self.books.bug == Some(Bug::DenialForgotten) {
            self.books = before;
        }
        answer
    }

    fn set_limit(&mut self, limit: u64, now: Timestamp) {
        self.books.advance(now);
        if self.books.bug != Some(Bug::LimitKept) {
            self.books.limit = limit;
        }
    }

    fn reset(&mut self, tenant: usize, now: Timestamp) {
        self.books.advance(now);
        self.books.reset(tenant);
    }

    fn refund(&mut self, tenant: usize, units: Cost, reset_at: Timestamp, now: Timestamp) {
        self.books.advance(now);
        self.books.refund(tenant, units, reset_at);
    }
}
