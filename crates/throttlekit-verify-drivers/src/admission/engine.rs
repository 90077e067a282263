//! The stores of the verification.

use std::time::Duration;

use anyhow::Result;
use throttlekit::clock::ManualClock;
use throttlekit::store::StoreError;
use throttlekit_postgres::{Durability, PostgresStore};
use throttlekit_redis::RedisStore;

use crate::runner::Services;
use crate::stores;

/// Long, because the decisions of an engine are checked and not its speed: it shares its processors with the
/// verification.
const DEADLINE: Duration = Duration::from_secs(30);
/// Longer than any trace takes, since an engine forgets by its own clock and a trace has another.
const GRACE: Duration = Duration::from_secs(600);
/// The connections of each of the stores that run at once; a server accepts a hundred by default.
const CONNECTIONS: usize = 2;
const SCHEMA: &str = "tk_admission";
/// Valkey is not listed: `verify stores` shows that it gives the same responses as Redis.
const NAMES: [&str; 4] = ["memory", "redis", "cluster", "postgres"];

/// A running store.
#[derive(Clone)]
pub(super) enum Engine {
    Memory,
    Redis(&'static str, RedisStore),
    Postgres(String),
}

impl Engine {
    /// Returns every store, started where necessary.
    pub(super) async fn all(services: Services) -> Result<Vec<Self>> {
        let engines = stores::engines();
        let addresses = stores::addresses(&engines, services)?;
        let mut all = Vec::new();
        for (engine, address) in engines.iter().zip(addresses) {
            if NAMES.contains(&engine.name) {
                all.push(Self::connect(engine.name, address).await?);
            }
        }
        Ok(all)
    }

    async fn connect(name: &'static str, address: String) -> Result<Self, StoreError> {
        Ok(match name {
            "memory" => Self::Memory,
            "postgres" => {
                postgres(&address, ManualClock::default()).await?;
                Self::Postgres(address)
            }
            _ => {
                let builder = match name {
                    "cluster" => RedisStore::cluster(address.split(',')),
                    _ => RedisStore::builder(address),
                };
                Self::Redis(name, builder.deadline(DEADLINE).grace(GRACE).connect().await?)
            }
        })
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis(name, _) => name,
            Self::Postgres(_) => "postgres",
        }
    }
}

/// Creates a store in a schema of the verification.
pub(super) fn postgres(
    address: &str,
    clock: ManualClock,
) -> impl Future<Output = Result<PostgresStore, StoreError>> + Send + use<> {
    PostgresStore::builder(address)
        .schema(SCHEMA)
        .clock(clock)
        .deadline(DEADLINE)
        .connections(CONNECTIONS)
        .durability(Durability::Deferred)
        .migrate_on_connect(true)
        .connect()
}

/// Runs an examination of conformance on the engine's own kind of store.
macro_rules! on {
    ($engine:expr, $examine:path $(, $argument:expr)*) => {
        match $engine.clone() {
            Engine::Memory => {
                let make = |clock: throttlekit::clock::ManualClock| {
                    std::future::ready(Ok(throttlekit::store::MemoryStore::with_clock(clock)))
                };
                $examine(make $(, $argument)*).await
            }
            Engine::Redis(_, store) => {
                let make = move |clock| std::future::ready(Ok(store.at(clock)));
                $examine(make $(, $argument)*).await
            }
            Engine::Postgres(address) => {
                let make = move |clock| $crate::admission::engine::postgres(&address, clock);
                $examine(make $(, $argument)*).await
            }
        }
    };
}
pub(super) use on;
