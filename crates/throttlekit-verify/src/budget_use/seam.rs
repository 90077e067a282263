//! The boundary between a budget and its store, where bugs are seeded.

use std::sync::Arc;

use throttlekit::budget::{Reservation, Reserve};
use throttlekit::clock::ManualClock;
use throttlekit::store::{
    Charge, Charges, Debit, Debited, LeaseRequest, LeaseReturn, Leased, MemoryStore, Outcome,
};
use throttlekit::store::{Settlement, Snapshot, Store, StoreError, Want};

throttlekit_conformance::bugs! {
    /// A bug in the reservations of a budget.
    pub enum UseBug {
        ReservesUpToTheWholeBudget: "A reservation takes up to the whole budget, or nothing.",
        ReservesAQuarterOfTheBudget: "Each reservation asks for a quarter of the budget.",
        ReservesAllOrNone: "A reservation that cannot be had in full is denied.",
        NeedsAQuarterOfTheBudget: "A reservation of less than a quarter of the budget is denied.",
        DropsReturns: "Unused units are never returned.",
        WaitsForTheWindow: "A stream that is denied waits for the next window.",
        OneLearnerForAll: "One learner sizes the reservations of all keys.",
        PlaceForOneLearner: "There is room for the learner of one key only.",
        FixedAtTheMost: "Each reservation asks for the most that a learner may.",
    }
}

/// The reservation of a fresh learner, and the maximum of any.
const WISHES: [u64; 2] = [2_048, 4_096];

impl UseBug {
    /// Returns the reservation that a budget with this bug makes instead.
    pub(super) fn reserve(self, reserve: Reserve) -> Reserve {
        match (self, reserve) {
            (Self::OneLearnerForAll, _) => Reserve::Learned(Reservation::default()),
            (Self::FixedAtTheMost, _) => Reserve::Fixed(WISHES[1]),
            (Self::PlaceForOneLearner, Reserve::PerKey { fresh, .. }) => {
                Reserve::PerKey { fresh, keys_max: 1 }
            }
            (_, reserve) => reserve,
        }
    }

    fn want(self, want: Want, budget: u64) -> Want {
        match self {
            Self::ReservesUpToTheWholeBudget => Want::whole(WISHES[0].min(budget)),
            // More than a slow stream can spend before its window ends.
            Self::ReservesAQuarterOfTheBudget => Want { wants: budget / 4, ..want },
            Self::ReservesAllOrNone => Want::whole(want.wants),
            Self::NeedsAQuarterOfTheBudget => {
                Want { wants: want.wants.max(budget / 4), least: budget / 4, ..want }
            }
            _ => want,
        }
    }
}

/// A store in memory with the bug in front of it.
#[derive(Clone)]
pub(super) struct Seam {
    pub(super) kept: Arc<MemoryStore<ManualClock>>,
    pub(super) budget: u64,
    pub(super) bug: Option<UseBug>,
}

impl Store for Seam {
    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        self.kept.admit(asks).await
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        self.kept.debit(debits).await
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Snapshot, StoreError> {
        self.kept.peek(charges).await
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        self.kept.settle(settlements).await
    }

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        let want = |want| self.bug.map_or(want, |bug| bug.want(want, self.budget));
        let asks: Vec<_> = asks.iter().map(|ask| LeaseRequest { want: want(ask.want), ..*ask }).collect();
        self.kept.lease(&asks).await
    }

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        match self.bug {
            Some(UseBug::DropsReturns) => Ok(()),
            _ => self.kept.give_back(backs).await,
        }
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.kept.reset(keys).await
    }
}
