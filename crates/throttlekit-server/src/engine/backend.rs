//! The store that all policies share, whichever it is.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use throttlekit::store::{LineStats, MemoryStore, RegionPool, RollStore, SlotStore, Store, StoreError};
use throttlekit::{Clock, KeyMemory, WallClock, forward_store};
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

/// Asks whichever store it is about itself.
macro_rules! see {
    ($self:ident, $store:ident => $see:expr) => {
        match &$self.backend {
            Backend::Memory($store) => $see,
            Backend::Redis($store) => $see,
            Backend::Postgres($store) => $see,
        }
    };
}

/// Runs a call on whichever store it is, counts it, and notes if it failed.
macro_rules! call {
    ($self:ident, $store:ident => $call:expr) => {{
        $self.calls.fetch_add(1, Relaxed);
        $self.seen(see!($self, $store => $call))
    }};
}

impl Store for Counted {
    forward_store!(Store for self via call; admit, admit_each, debit, peek, settle, lease, give_back, reset);
    forward_store!(Store for self via see; guarantee, background, local_shares);
}

impl SlotStore for Counted {
    forward_store!(SlotStore for self via call; acquire, heartbeat, release, occupancy);
    forward_store!(SlotStore for self via see; guarantee, background);
}

impl RollStore for Counted {
    forward_store!(RollStore for self via call; load, swap);
    forward_store!(RollStore for self via see; guarantee, background);
}

impl RegionPool for Counted {
    forward_store!(RegionPool for self via call; grant);
    forward_store!(RegionPool for self via see; guarantee, background);
}
