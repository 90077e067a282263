//! The stores of the verification.

use std::time::Duration;

use anyhow::Result;
use throttlekit::clock::ManualClock;
use throttlekit::store::{
    HeartbeatOutcome, MemoryStore, Occupancy, SlotAnswer, SlotLease, SlotRequest, SlotStore, StoreError,
};
use throttlekit_postgres::PostgresStore;
use throttlekit_redis::RedisStore;

use crate::runner::Services;
use crate::stores;

/// Long, because the decisions of an engine are checked and not its speed: it shares its processors with the
/// verification.
const DEADLINE: Duration = Duration::from_secs(20);
/// Longer than any scenario takes, since an engine forgets by its own clock and a scenario has another.
const GRACE: Duration = Duration::from_secs(600);
const CONNECTIONS: usize = 4;

/// A store by its name and address.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    pub(super) name: String,
    pub(super) address: String,
}

/// Any of the stores.
#[derive(Clone)]
pub(super) enum AnyStore {
    Memory(std::sync::Arc<MemoryStore<ManualClock>>),
    Redis(RedisStore),
    Postgres(PostgresStore),
}

impl Engine {
    /// Returns every store, started where necessary.
    pub(super) fn all(services: Services) -> Result<Vec<Self>> {
        let engines = stores::engines();
        let addresses = stores::addresses(&engines, services)?;
        let engine =
            |(engine, address): (&stores::Engine, String)| Self { name: engine.name.into(), address };
        Ok(engines.iter().zip(addresses).map(engine).collect())
    }

    /// Returns `true` if client processes run on it. A Cluster and Valkey are only checked for equal
    /// responses.
    pub(super) fn has_processes(&self) -> bool {
        matches!(&*self.name, "redis" | "postgres")
    }

    /// Connects a store that reads its own clock.
    pub(super) async fn connect(&self) -> Result<AnyStore, StoreError> {
        self.open(None).await
    }

    /// Connects a store that reads this clock.
    pub(super) async fn at(&self, clock: ManualClock) -> Result<AnyStore, StoreError> {
        self.open(Some(clock)).await
    }

    async fn open(&self, clock: Option<ManualClock>) -> Result<AnyStore, StoreError> {
        let address = self.address.clone();
        Ok(match &*self.name {
            "memory" => AnyStore::Memory(MemoryStore::with_clock(clock.unwrap_or_default()).into()),
            "postgres" => {
                let mut builder = PostgresStore::builder(address)
                    .deadline(DEADLINE)
                    .connections(CONNECTIONS)
                    .migrate_on_connect(true);
                if let Some(clock) = clock {
                    builder = builder.clock(clock);
                }
                AnyStore::Postgres(builder.connect().await?)
            }
            name => {
                let builder = match name {
                    "cluster" => RedisStore::cluster(address.split(',')),
                    _ => RedisStore::builder(address),
                };
                let builder = builder.deadline(DEADLINE).grace(GRACE);
                let store = builder.connect().await?;
                AnyStore::Redis(clock.map_or_else(|| store.clone(), |clock| store.at(clock)))
            }
        })
    }
}

impl SlotStore for AnyStore {
    async fn acquire(&self, ask: &SlotRequest<'_>) -> Result<SlotAnswer, StoreError> {
        match self {
            Self::Memory(store) => store.acquire(ask).await,
            Self::Redis(store) => store.acquire(ask).await,
            Self::Postgres(store) => store.acquire(ask).await,
        }
    }

    async fn heartbeat(
        &self,
        leases: &[SlotLease<'_>],
        lives: Duration,
    ) -> Vec<Result<HeartbeatOutcome, StoreError>> {
        match self {
            Self::Memory(store) => store.heartbeat(leases, lives).await,
            Self::Redis(store) => store.heartbeat(leases, lives).await,
            Self::Postgres(store) => store.heartbeat(leases, lives).await,
        }
    }

    async fn release(&self, leases: &[SlotLease<'_>]) -> Vec<Result<bool, StoreError>> {
        match self {
            Self::Memory(store) => store.release(leases).await,
            Self::Redis(store) => store.release(leases).await,
            Self::Postgres(store) => store.release(leases).await,
        }
    }

    async fn occupancy(&self, keys: &[&str]) -> Result<Vec<Occupancy>, StoreError> {
        match self {
            Self::Memory(store) => store.occupancy(keys).await,
            Self::Redis(store) => store.occupancy(keys).await,
            Self::Postgres(store) => store.occupancy(keys).await,
        }
    }
}
