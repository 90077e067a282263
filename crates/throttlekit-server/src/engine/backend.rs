//! The store that all policies share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use throttlekit::clock::{Clock, WallClock};
use throttlekit::forward_store;
use throttlekit::limiter::KeyMemory;
use throttlekit::store::{
    Charge, Charges, Decided, MembershipStore, MemoryStore, Outcome, RegionStore, SlotStore, Store,
    StoreClientStats, StoreError,
};
use throttlekit_postgres::PostgresStore;
use throttlekit_redis::RedisStore;

use super::coalesced::Coalesced;
use super::failures::{Failed, Failures};

/// A key that holds no slots.
const PROBE: &str = "tk:{throttlekit.probe/}h:";

/// Location of the counts.
#[derive(Clone)]
#[non_exhaustive]
pub enum Backend {
    /// In this process: for a single instance.
    Memory(Arc<MemoryStore<Arc<dyn Clock>>>),
    /// On Redis or Valkey.
    Redis(Coalesced),
    /// On PostgreSQL.
    Postgres(Arc<PostgresStore>),
}

impl Backend {
    /// Creates a store in this process's memory.
    pub fn memory() -> Self {
        Self::memory_with_clock(Arc::new(WallClock))
    }

    /// Creates a store in this process's memory, in which keys take at most `bytes` bytes.
    pub fn memory_within(bytes: usize) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(WallClock);
        Self::Memory(Arc::new(MemoryStore::with_clock(clock).memory_budget(bytes)))
    }

    /// Creates a store in this process's memory with another clock.
    pub fn memory_with_clock(clock: Arc<dyn Clock>) -> Self {
        Self::Memory(Arc::new(MemoryStore::with_clock(clock)))
    }

    /// Counts on Redis or Valkey. Concurrent decisions are sent together, except over a cluster.
    pub fn redis(store: RedisStore) -> Self {
        Self::Redis(Coalesced::new(store))
    }

    /// Returns `memory`, `redis` or `postgres`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Redis(_) => "redis",
            Self::Postgres(_) => "postgres",
        }
    }

    /// Sends a no-op call to check whether the store responds.
    pub(crate) async fn probe(&self) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(store) => SlotStore::occupancy(store, &[PROBE]).await.map(drop),
            Self::Postgres(store) => SlotStore::occupancy(store, &[PROBE]).await.map(drop),
        }
    }

    /// Returns the usage of the memory for keys. `None` if keys are not in this process.
    pub fn key_memory(&self) -> Option<KeyMemory> {
        match self {
            Self::Memory(store) => Some(store.memory()),
            Self::Redis(_) | Self::Postgres(_) => None,
        }
    }

    /// Returns the statistics of calls to the store. `None` if it needs no calls.
    pub fn line_stats(&self) -> Option<StoreClientStats> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store) => Some(store.store().line_stats()),
            Self::Postgres(store) => Some(store.line_stats()),
        }
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

/// The store of one policy: its calls are counted, and the last failure is remembered.
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

/// Queries whichever store it is.
macro_rules! see {
    ($self:ident, $store:ident => $see:expr) => {
        match &$self.backend {
            Backend::Memory($store) => $see,
            Backend::Redis($store) => $see,
            Backend::Postgres($store) => $see,
        }
    };
}

/// Runs a call on whichever store it is, counts it, and records a failure. Futures of remote stores take kilobytes: in a
/// box, since each decision in memory would copy as much.
macro_rules! call {
    ($self:ident, $store:ident => $call:expr) => {{
        $self.calls.fetch_add(1, Relaxed);
        let answer = match &$self.backend {
            Backend::Memory($store) => $call,
            Backend::Redis($store) => Box::pin(async { $call }).await,
            Backend::Postgres($store) => Box::pin(async { $call }).await,
        };
        $self.seen(answer)
    }};
}

impl Store for Counted {
    forward_store!(Store for self via call; admit, admit_each, debit, peek, settle, lease, give_back, reset);
    forward_store!(Store for self via see; guarantee, background, local_shares);

    fn admit_now(&self, ask: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        let Backend::Memory(store) = &self.backend else { return None };
        self.calls.fetch_add(1, Relaxed);
        store.admit_now(ask).map(|answer| self.seen(answer))
    }

    fn decide_now(&self, charge: &Charge<'_>) -> Option<Result<Decided, StoreError>> {
        let Backend::Memory(store) = &self.backend else { return None };
        self.calls.fetch_add(1, Relaxed);
        store.decide_now(charge).map(|answer| self.seen(answer))
    }
}

impl SlotStore for Counted {
    forward_store!(SlotStore for self via call; acquire, heartbeat, release, occupancy);
    forward_store!(SlotStore for self via see; guarantee, background);
}

impl MembershipStore for Counted {
    forward_store!(MembershipStore for self via call; load, swap);
    forward_store!(MembershipStore for self via see; guarantee, background);
}

impl RegionStore for Counted {
    forward_store!(RegionStore for self via call; grant);
    forward_store!(RegionStore for self via see; guarantee, background);
}
