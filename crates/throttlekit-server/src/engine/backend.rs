//! The store that all policies share, whichever it is.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::store::{
    Background, Beat, Charge, Charges, Debit, Debited, GiveBack, Kept, LeaseAsk, Lent, LineStats,
    LocalShares, MemoryStore, Occupancy, Outcome, RegionAsk, RegionGrant, RegionPool, RollStore, Settlement,
    Sight, SlotAnswer, SlotAsk, SlotLease, SlotStore, Store, StoreError, Swapped,
};
use throttlekit::{Clock, Guarantee, KeyMemory, WallClock};
use throttlekit_postgres::PostgresStore;
use throttlekit_redis::RedisStore;

use super::failures::{Failed, Failures};

/// A key that nobody holds slots of.
const PROBE: &str = "tk:{throttlekit.probe/}h:";

/// Where counts are kept.
#[derive(Clone)]
pub enum Backend {
    /// In this process: for one instance alone.
    Memory(Arc<MemoryStore<Arc<dyn Clock>>>),
    /// On Redis or Valkey.
    Redis(RedisStore),
    /// On PostgreSQL.
    Postgres(Arc<PostgresStore>),
}

impl Backend {
    /// This process's memory.
    pub fn memory() -> Self {
        Self::memory_with_clock(Arc::new(WallClock))
    }

    /// This process's memory, of which keys take so many bytes at the most.
    pub fn memory_within(bytes: usize) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(WallClock);
        Self::Memory(Arc::new(MemoryStore::with_clock(clock).memory_budget(bytes)))
    }

    /// This process's memory, by another clock.
    pub fn memory_with_clock(clock: Arc<dyn Clock>) -> Self {
        Self::Memory(Arc::new(MemoryStore::with_clock(clock)))
    }

    /// `memory`, `redis` or `postgres`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Redis(_) => "redis",
            Self::Postgres(_) => "postgres",
        }
    }

    /// Asks for nothing, to find out whether it answers.
    pub(super) async fn probe(&self) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(store) => SlotStore::occupancy(store, &[PROBE]).await.map(drop),
            Self::Postgres(store) => SlotStore::occupancy(store, &[PROBE]).await.map(drop),
        }
    }

    /// How full the memory for keys is. Nothing where it is not this process's.
    pub fn key_memory(&self) -> Option<KeyMemory> {
        match self {
            Self::Memory(store) => Some(store.memory()),
            Self::Redis(_) | Self::Postgres(_) => None,
        }
    }

    /// How calls to it have gone. Nothing where there are none.
    pub fn line_stats(&self) -> Option<LineStats> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store) => Some(store.line_stats()),
            Self::Postgres(store) => Some(store.line_stats()),
        }
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

/// The store as one policy sees it: its calls are counted, and the last that failed is remembered.
#[derive(Clone)]
pub(super) struct Counted {
    backend: Backend,
    calls: Arc<AtomicU64>,
    failures: Arc<Failures>,
}

impl Counted {
    pub(super) fn new(backend: Backend, calls: Arc<AtomicU64>, failures: Arc<Failures>) -> Self {
        Self { backend, calls, failures }
    }

    #[inline]
    fn seen<A: Failed>(&self, answer: A) -> A {
        if let Some(error) = answer.failed() {
            self.failures.note(error);
        }
        answer
    }
}

/// Runs a call on whichever store it is, counts it, and notes if it failed.
macro_rules! call {
    ($self:ident, $store:ident => $call:expr) => {{
        $self.calls.fetch_add(1, Relaxed);
        $self.seen(match &$self.backend {
            Backend::Memory($store) => $call,
            Backend::Redis($store) => $call,
            Backend::Postgres($store) => $call,
        })
    }};
}

/// What the store's word is worth on this trait.
macro_rules! guarantee {
    ($trait:ident, $self:ident) => {
        match &$self.backend {
            Backend::Memory(store) => $trait::guarantee(store),
            Backend::Redis(store) => $trait::guarantee(store),
            Backend::Postgres(store) => $trait::guarantee(store),
        }
    };
}

/// Where the store's background work runs, on this trait.
macro_rules! background {
    ($trait:ident, $self:ident) => {
        match &$self.backend {
            Backend::Memory(store) => $trait::background(store),
            Backend::Redis(store) => $trait::background(store),
            Backend::Postgres(store) => $trait::background(store),
        }
    };
}

impl Store for Counted {
    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        call!(self, store => store.admit(asks).await)
    }

    async fn admit_each(&self, asks: &[Charges<'_>]) -> Vec<Result<Outcome, StoreError>> {
        call!(self, store => store.admit_each(asks).await)
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        call!(self, store => store.debit(debits).await)
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Sight, StoreError> {
        call!(self, store => store.peek(charges).await)
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        call!(self, store => store.settle(settlements).await)
    }

    async fn lease(&self, asks: &[LeaseAsk<'_>]) -> Vec<Result<Lent, StoreError>> {
        call!(self, store => store.lease(asks).await)
    }

    async fn give_back(&self, backs: &[GiveBack<'_>]) -> Result<(), StoreError> {
        call!(self, store => store.give_back(backs).await)
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        call!(self, store => Store::reset(store, keys).await)
    }

    fn guarantee(&self) -> Guarantee {
        guarantee!(Store, self)
    }

    fn background(&self) -> Background {
        background!(Store, self)
    }

    fn local_shares(&self) -> Option<&LocalShares> {
        match &self.backend {
            Backend::Memory(store) => store.local_shares(),
            Backend::Redis(store) => store.local_shares(),
            Backend::Postgres(store) => store.local_shares(),
        }
    }
}

impl SlotStore for Counted {
    async fn acquire(&self, ask: &SlotAsk<'_>) -> Result<SlotAnswer, StoreError> {
        call!(self, store => store.acquire(ask).await)
    }

    async fn heartbeat(&self, leases: &[SlotLease<'_>], lives: Duration) -> Vec<Result<Beat, StoreError>> {
        call!(self, store => store.heartbeat(leases, lives).await)
    }

    async fn release(&self, leases: &[SlotLease<'_>]) -> Vec<Result<bool, StoreError>> {
        call!(self, store => store.release(leases).await)
    }

    async fn occupancy(&self, keys: &[&str]) -> Result<Vec<Occupancy>, StoreError> {
        call!(self, store => store.occupancy(keys).await)
    }

    fn guarantee(&self) -> Guarantee {
        guarantee!(SlotStore, self)
    }

    fn background(&self) -> Background {
        background!(SlotStore, self)
    }
}

impl RollStore for Counted {
    async fn load(&self, key: &str) -> Result<Kept, StoreError> {
        call!(self, store => store.load(key).await)
    }

    async fn swap(
        &self,
        key: &str,
        version: u64,
        bytes: &[u8],
        keeps: Duration,
    ) -> Result<Swapped, StoreError> {
        call!(self, store => store.swap(key, version, bytes, keeps).await)
    }

    fn guarantee(&self) -> Guarantee {
        guarantee!(RollStore, self)
    }

    fn background(&self) -> Background {
        background!(RollStore, self)
    }
}

impl RegionPool for Counted {
    async fn grant(&self, ask: &RegionAsk<'_>) -> Result<RegionGrant, StoreError> {
        call!(self, store => store.grant(ask).await)
    }

    fn guarantee(&self) -> Guarantee {
        guarantee!(RegionPool, self)
    }

    fn background(&self) -> Background {
        background!(RegionPool, self)
    }
}
