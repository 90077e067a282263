//! The seam for state that several processes share: what a store does, and what is common to all of them.
//!
//! A [`Store`] applies the charges of one ask all or none, at its own time, in one flight. What users hold is a
//! [`SharedLimiter`](crate::SharedLimiter) over one. A crate that brings an engine implements [`Store`], sends
//! every call through a [`Line`], which has the deadline, the bound on calls in flight, the breaker and the
//! counters, and builds its answers with [`Outcome::of`]. [`MemoryStore`] is the same in one process.

mod breaker;
mod debit;
mod endpoint;
mod heartbeat;
mod key;
mod lease;
mod local_shares;
mod membership;
mod memory;
mod outcome;
mod region;
mod slots;
mod streams;

pub use debit::{Countable, Debit, DebitId, Debited, LastDebit, REMEMBER_DEFAULT, REMEMBER_MAX};
pub use endpoint::{Line, LineOptions, LineStats, Probe};
pub use heartbeat::{Heard, beat};
pub use key::{KEY_PART_MAX, KeySpace};
pub use lease::{GiveBack, LeaseAsk, Lendable, Lent};
pub use local_shares::LocalShares;
pub(crate) use local_shares::{LocalShare, check_shares};
pub use membership::{Kept, ROLL_BYTES_MAX, ROLL_KEPT_DEFAULT, RollStore, Swapped};
pub use memory::MemoryStore;
pub use outcome::{Charge, Charges, Outcome, Settlement, Sight};
pub use region::{RegionAsk, RegionGrant, RegionPool};
pub use slots::{LIVES_MAX, LIVES_MIN, Occupancy, SlotAnswer, SlotAsk, SlotLease, SlotStore};
pub use throttlekit_core::concurrency::{Beat, Full, LeaseId, Owner, SLOTS_MAX, Slot, SlotStep};
pub use throttlekit_core::fair::Weight;
pub use throttlekit_core::fair::pool::{Grant, TooManyRegions};
pub use throttlekit_core::lease::{Epoch, Loan, Return, ReturnId, Term, Want};

pub use crate::background::{Background, TaskSlot};
pub use crate::store_error::StoreError;

use crate::Guarantee;

/// A name that nobody guesses, for a stream of debits, a return or a lease.
pub fn random_name() -> u128 {
    crate::hash::random_u128()
}

/// The most charges one ask may have.
pub const CHARGES_MAX: usize = 16;

/// Keeps state, applies charges all or none.
///
/// Time is the store's own, so processes need not agree on a clock. No method is tried again by itself: a call
/// whose reply was lost may have charged. Only a [`Debit`], which has a name, may be sent again.
pub trait Store: Send + Sync + 'static {
    /// Answers each ask by itself, in order, and charges those that pass. One flight for all.
    fn admit(&self, asks: &[Charges<'_>]) -> impl Future<Output = Result<Vec<Outcome>, StoreError>> + Send;

    /// The same for asks that may lie in different places, of which some may not answer: each has its own answer or
    /// error. One flight for each place.
    fn admit_each(
        &self,
        asks: &[Charges<'_>],
    ) -> impl Future<Output = Vec<Result<Outcome, StoreError>>> + Send {
        async move {
            match self.admit(asks).await {
                Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
                Err(error) => asks.iter().map(|_| Err(error.clone())).collect(),
            }
        }
    }

    /// Answers each debit by itself, and charges those that pass and have not been charged before. Each has its own
    /// answer or error: [`StoreError::Stale`] if a later one of its stream has been answered. One flight for each place.
    fn debit(&self, debits: &[Debit<'_>]) -> impl Future<Output = Vec<Result<Debited, StoreError>>> + Send;

    /// What the store remembers for these charges, writing nothing.
    fn peek(&self, charges: &[Charge<'_>]) -> impl Future<Output = Result<Sight, StoreError>> + Send;

    /// Replaces what charges took by what was used.
    fn settle(&self, settlements: &[Settlement<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Lends units to nodes that spend them by themselves: each ask by itself, each with its own answer or error. One
    /// flight for each place.
    fn lease(&self, asks: &[LeaseAsk<'_>]) -> impl Future<Output = Vec<Result<Lent, StoreError>>> + Send;

    /// Takes lent units back into their windows. Each return counts once, however often it arrives.
    fn give_back(&self, backs: &[GiveBack<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Forgets keys, but not which returns and debits have been counted.
    fn reset(&self, keys: &[&str]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// What an answer of this store is worth.
    fn guarantee(&self) -> Guarantee {
        Guarantee::Exact
    }

    /// What this process counts of its limits while the store is away, for all limiters over it: the same for each clone.
    /// A store that has none leaves each limiter to count by itself. Who wraps a store passes on what it says.
    fn local_shares(&self) -> Option<&LocalShares> {
        None
    }

    /// Where its background work runs, and that of everything built on it. Who wraps a store passes it on.
    fn background(&self) -> Background {
        Background::default()
    }
}

impl<S: Store> Store for std::sync::Arc<S> {
    fn admit(&self, asks: &[Charges<'_>]) -> impl Future<Output = Result<Vec<Outcome>, StoreError>> + Send {
        (**self).admit(asks)
    }

    fn admit_each(
        &self,
        asks: &[Charges<'_>],
    ) -> impl Future<Output = Vec<Result<Outcome, StoreError>>> + Send {
        (**self).admit_each(asks)
    }

    fn debit(&self, debits: &[Debit<'_>]) -> impl Future<Output = Vec<Result<Debited, StoreError>>> + Send {
        (**self).debit(debits)
    }

    fn peek(&self, charges: &[Charge<'_>]) -> impl Future<Output = Result<Sight, StoreError>> + Send {
        (**self).peek(charges)
    }

    fn settle(&self, settlements: &[Settlement<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send {
        (**self).settle(settlements)
    }

    fn lease(&self, asks: &[LeaseAsk<'_>]) -> impl Future<Output = Vec<Result<Lent, StoreError>>> + Send {
        (**self).lease(asks)
    }

    fn give_back(&self, backs: &[GiveBack<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send {
        (**self).give_back(backs)
    }

    fn reset(&self, keys: &[&str]) -> impl Future<Output = Result<(), StoreError>> + Send {
        (**self).reset(keys)
    }

    fn guarantee(&self) -> Guarantee {
        (**self).guarantee()
    }

    fn local_shares(&self) -> Option<&LocalShares> {
        (**self).local_shares()
    }

    fn background(&self) -> Background {
        (**self).background()
    }
}
