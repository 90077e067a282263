//! A lossy network: drops some requests before they arrive, and some responses after the store has handled
//! the request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::Guarantee;
use throttlekit::store::{
    Charge, Charges, Debit, Debited, LeaseRequest, LeaseReturn, Leased, LocalShares, Outcome,
};
use throttlekit::store::{Settlement, Snapshot, Store, StoreError};

use throttlekit_conformance::Dice;

/// A store behind a lossy network.
pub struct Lossy<S> {
    store: Arc<S>,
    /// One call in `one_in` is lost; none, if zero.
    one_in: u64,
    seed: u64,
    calls: AtomicU64,
}

enum Fate {
    Arrives,
    RequestLost,
    AnswerLost,
}

impl<S: Store> Lossy<S> {
    /// Creates a store that loses one call in `one_in`, half of them on the way there.
    pub fn new(store: Arc<S>, one_in: u64, seed: u64) -> Self {
        Self { store, one_in, seed, calls: AtomicU64::new(0) }
    }

    fn fate(&self) -> Fate {
        let call = self.calls.fetch_add(1, Relaxed);
        let mut dice = Dice::new((self.seed << 32) ^ call);
        match self.one_in {
            0 => Fate::Arrives,
            n if !dice.once_in(n) => Fate::Arrives,
            _ if dice.once_in(2) => Fate::RequestLost,
            _ => Fate::AnswerLost,
        }
    }

    /// Yields first, so that a store without a network is called concurrently too.
    async fn carry<T>(&self, call: impl Future<Output = T>) -> Result<T, StoreError> {
        let lost = || StoreError::Deadline(Duration::from_millis(1));
        let fate = self.fate();
        tokio::task::yield_now().await;
        if matches!(fate, Fate::RequestLost) {
            return Err(lost());
        }
        let answer = call.await;
        tokio::task::yield_now().await;
        if matches!(fate, Fate::AnswerLost) { Err(lost()) } else { Ok(answer) }
    }
}

impl<S: Store> Store for Lossy<S> {
    fn background(&self) -> throttlekit::store::Background {
        Store::background(&self.store)
    }

    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        self.carry(self.store.admit(asks)).await?
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        self.carry(self.store.debit(debits)).await.unwrap_or_else(|lost| vec![Err(lost); debits.len()])
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Snapshot, StoreError> {
        self.carry(self.store.peek(charges)).await?
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        self.carry(self.store.settle(settlements)).await?
    }

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        self.carry(self.store.lease(asks)).await.unwrap_or_else(|lost| vec![Err(lost); asks.len()])
    }

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        self.carry(self.store.give_back(backs)).await?
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.carry(self.store.reset(keys)).await?
    }

    fn local_shares(&self) -> Option<&LocalShares> {
        self.store.local_shares()
    }

    fn guarantee(&self) -> Guarantee {
        self.store.guarantee()
    }
}
