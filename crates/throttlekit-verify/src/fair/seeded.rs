//! Sharing rules with a seeded bug, to show that each invariant can fail.

use throttlekit_core::fair::Weight;
use throttlekit_core::{Cost, Decision, Retry, Timestamp};

use super::{Books, FairScenario, Shares};

throttlekit_conformance::bugs! {
    /// A bug of a [`Seeded`] rule.
    pub enum Bug {
        CountedTwice: "What is used beyond the guarantee counts against what may be borrowed again.",
        BorrowsAgain: "A tenant beyond its guarantee may borrow again.",
        NeverBorrows: "Nobody may borrow what is not reserved.",
        OwnReserved: "A tenant's own unused guarantee is reserved from it.",
        DividesFirst: "The guarantee divides before it multiplies.",
        WeightIgnored: "All tenants have the same guarantee.",
        ReserveUnder: "One unit too few is reserved for each other tenant.",
        ReserveOver: "One unit too many is reserved for each other tenant.",
        GuaranteeAboveAll: "A request within its guarantee is admitted beyond the limit.",
        DenialCharged: "A denied request is charged.",
        DenialForgotten: "A tenant whose first request is denied is not registered.",
        WeightKept: "A tenant keeps its first weight.",
        WeightRefunds: "A change of weight forgets what was used.",
        EvictionRefunds: "Eviction returns what the evicted tenant used.",
        EvictionForgives: "A tenant that takes an evicted place does not inherit its use.",
        MostUsedLoses: "The tenant with the most use is evicted.",
        LimitKept: "A new limit is ignored.",
        WindowBack: "A clock that steps back starts an earlier window afresh.",
        StaysAhead: "A clock that was ahead is never followed back.",
        FreshOnReturn: "A window that is entered again begins unused.",
        ForgottenIsFresh: "A window that was forgotten begins unused.",
        RemembersOneWindow: "Only one earlier window is remembered.",
        TenantsStay: "Tenants stay registered in the next window.",
        QuietWhileDenied: "A tenant whose requests are denied counts as quiet.",
        NeverWakes: "A tenant that gave its guarantee back never gets it again.",
        UseGivenBack: "A quiet tenant's use is forgotten with its guarantee.",
        UseUncovered: "A quiet tenant gives back the part of its guarantee that it has used.",
        PartEarly: "A guarantee is given back one part early.",
        PartLate: "A guarantee is given back one part late.",
        NanoEarly: "A guarantee is given back a nanosecond early.",
        NanoLate: "A guarantee is given back a nanosecond late.",
        RetryEarly: "Waits are a nanosecond too short.",
        NeverAsWait: "A request that can never be admitted is asked to wait.",
        LeftAsRemaining: "What is left of the limit is reported as the tenant's remaining units.",
        PlaceImagined: "A request of cost zero is answered as if there were always a place.",
        RefundOfAnyWindow: "A refund counts in whichever window it arrives.",
        RefundForgotten: "Refunds are ignored.",
        RefundStaysCovered: "A quiet tenant's guarantee still covers what was refunded.",
    }
}

/// A rule that walks over all tenants, with one bug or with none.
#[derive(Clone, Debug)]
pub struct Seeded {
    books: Books,
}

impl Seeded {
    /// Creates the rule of a scenario.
    pub fn new(scenario: &FairScenario, bug: Option<Bug>) -> Self {
        Self { books: Books::new(scenario, bug) }
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

impl Shares for Seeded {
    fn ask(&mut self, tenant: usize, weight: Weight, cost: Cost, now: Timestamp) -> Decision {
        self.books.advance(now);
        let (before, known) = (self.books.clone(), self.books.place_of(tenant));
        if cost == 0 {
            // A request of zero: an unknown tenant gets a slot for a moment.
            if self.books.bug == Some(Bug::PlaceImagined) {
                self.books.places_max = usize::MAX;
            }
            let place = known.unwrap_or_else(|| self.books.find_place(tenant, weight.get()));
            let answer = self.answer(place, 0, true, now);
            self.books = before;
            return answer;
        }
        let place = self.books.fixture(tenant, weight.get());
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
