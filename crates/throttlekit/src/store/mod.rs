//! The interface for state that several processes share: the store, and the parts common to all stores.
//!
//! A [`Store`] applies the charges of one request all or none, at its own time, in one round trip. Users hold a
//! [`SharedLimiter`](crate::SharedLimiter) over one. A crate for an engine implements [`Store`], sends every call
//! through a [`StoreClient`], which has the deadline, the limit on calls in flight, the circuit breaker and the counters, and
//! builds its responses with [`Outcome::of`]. [`MemoryStore`] is the same in one process.

mod breaker;
mod capabilities;
mod debit;
mod endpoint;
mod forward;
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

pub use capabilities::Capabilities;
pub use debit::{Countable, Debit, DebitId, Debited, LastDebit, REMEMBER_DEFAULT, REMEMBER_MAX};
pub use endpoint::{Probe, StoreClient, StoreClientOptions, StoreClientStats};
pub use heartbeat::{HeartbeatReply, heartbeat};
pub use key::{KEY_PART_MAX, KeySpace};
pub use lease::{LeaseRequest, LeaseReturn, Leased, Lendable};
pub use local_shares::LocalShares;
pub(crate) use local_shares::{LocalShare, check_shares};
pub use membership::{
    MEMBERSHIP_BYTES_MAX, MEMBERSHIP_KEPT_DEFAULT, MembershipRecord, MembershipStore, Swapped,
};
pub use memory::MemoryStore;
pub use outcome::{Charge, Charges, Decided, Outcome, Settlement, Snapshot};
pub use region::{RegionGrant, RegionRequest, RegionStore};
pub use slots::{LIVES_MAX, LIVES_MIN, Occupancy, SlotAnswer, SlotLease, SlotRequest, SlotStore};
pub use throttlekit_core::concurrency::{Full, HeartbeatOutcome, LeaseId, Owner, SLOTS_MAX, Slot, SlotStep};
pub use throttlekit_core::fair::Weight;
pub use throttlekit_core::fair::pool::{PoolGrant, TooManyRegions};
pub use throttlekit_core::lease::{Epoch, Loan, Return, ReturnId, Term, Want};

pub use crate::background::{Background, TaskSlot};
pub use crate::store_error::StoreError;

use crate::{Guarantee, forward_store};

/// Returns a name that cannot be guessed, for a stream of debits, a return or a lease.
pub fn random_name() -> u128 {
    crate::hash::random_u128()
}

/// Maximum number of charges of one request.
pub const CHARGES_MAX: usize = 16;

/// Keeps state, and applies charges all or none.
///
/// Time is the store's own, so processes need not agree on a clock. No method is retried automatically: a call whose
/// reply was lost may have charged. Only a [`Debit`], which has an idempotency key, may be sent again.
pub trait Store: Send + Sync + 'static {
    /// Decides each request independently, in order, and charges those that pass. One round trip for all.
    fn admit(&self, asks: &[Charges<'_>]) -> impl Future<Output = Result<Vec<Outcome>, StoreError>> + Send;

    /// The same for requests that may lie in different cluster slots, of which some may not respond: each has its own
    /// outcome or error. One round trip for each slot.
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

    /// Decides one request like [`admit`](Self::admit), if the store can without waiting. Default: it cannot. A wrapper
    /// of a store forwards it, unless it changes `admit`.
    fn admit_now(&self, ask: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        let _ = ask;
        None
    }

    /// Decides one charge that nobody settles, likewise.
    fn decide_now(&self, charge: &Charge<'_>) -> Option<Result<Decided, StoreError>> {
        let _ = charge;
        None
    }

    /// Decides each debit independently, and charges those that pass and have not been charged before. Each has its own
    /// response or error: [`StoreError::Stale`] if a later one of its stream has been decided. One round trip for each
    /// cluster slot.
    fn debit(&self, debits: &[Debit<'_>]) -> impl Future<Output = Vec<Result<Debited, StoreError>>> + Send;

    /// Returns the stored state for these charges, and writes nothing.
    fn peek(&self, charges: &[Charge<'_>]) -> impl Future<Output = Result<Snapshot, StoreError>> + Send;

    /// Replaces what charges took by what was used.
    fn settle(&self, settlements: &[Settlement<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Lends units to nodes that spend them locally: each request independently, each with its own response or error.
    /// One round trip for each cluster slot.
    fn lease(
        &self,
        asks: &[LeaseRequest<'_>],
    ) -> impl Future<Output = Vec<Result<Leased, StoreError>>> + Send;

    /// Takes lent units back into their windows. Each return counts once, however often it arrives.
    fn give_back(&self, backs: &[LeaseReturn<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Forgets keys, but not which returns and debits have been counted.
    fn reset(&self, keys: &[&str]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the guarantee of this store's decisions.
    fn guarantee(&self) -> Guarantee {
        Guarantee::Exact
    }

    /// Returns what this process counts of its limits while the store is unavailable, for all limiters over it: the
    /// same for each clone. If a store has none, each limiter counts separately. A wrapper of a store forwards it.
    fn local_shares(&self) -> Option<&LocalShares> {
        None
    }

    /// Returns how the store differs from others. A wrapper of a store forwards it.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Returns the background for its work and for everything built on it. A wrapper of a store forwards it.
    fn background(&self) -> Background {
        Background::default()
    }
}

impl<S: Store> Store for std::sync::Arc<S> {
    forward_store!(Store for self => **self; admit, admit_each, debit, peek, settle, lease, give_back, reset);
    forward_store!(Store for self => **self; guarantee, local_shares, capabilities, background);

    fn admit_now(&self, ask: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        (**self).admit_now(ask)
    }

    fn decide_now(&self, charge: &Charge<'_>) -> Option<Result<Decided, StoreError>> {
        (**self).decide_now(charge)
    }
}
