//! Shared helpers: the server's address, and a store in a schema of its own.

use std::time::Duration;

use throttlekit::rate::shared::ScriptEncoding;
use throttlekit::store::{Charge, Charges, Outcome, Store, StoreError};
use throttlekit::{Limit, rate::Need};
use throttlekit_postgres::{PostgresStore, PostgresStoreBuilder};
use tokio_postgres::{Client, NoTls};

/// Returns an address. Tests never skip: a store that was not tested must not look like one that was.
pub(crate) fn address(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set; run `cargo xtask services up`"))
}

pub(crate) fn url() -> String {
    address("THROTTLEKIT_POSTGRES")
}

pub(crate) fn builder(schema: &str) -> PostgresStoreBuilder {
    PostgresStore::builder(url()).schema(schema).deadline(Duration::from_secs(20)).migrate_on_connect(true)
}

/// Opens a plain connection beside the store's.
pub(crate) async fn client() -> Client {
    connect(&url()).await
}

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the server answers");
    tokio::spawn(connection);
    client
}

/// Removes what an earlier run left.
pub(crate) async fn clear(schema: &str) {
    client().await.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await.unwrap();
}

pub(crate) async fn fresh(schema: &str) -> PostgresStore {
    clear(schema).await;
    builder(schema).connect().await.unwrap()
}

pub(crate) fn form(limit: Limit) -> ScriptEncoding {
    ScriptEncoding::of(&limit).unwrap()
}

pub(crate) async fn ask(
    store: &PostgresStore,
    key: &str,
    form: &ScriptEncoding,
    cost: u64,
) -> Result<Outcome, StoreError> {
    let charges = [Charge { key, form, cost }];
    let outcomes = store.admit(&[Charges { need: Need::All, charges: &charges }]).await?;
    Ok(outcomes.into_iter().next().unwrap())
}

/// Returns every row as text, in order.
pub(crate) async fn dump(client: &Client, schema: &str) -> Vec<String> {
    let text = format!("SELECT s::text || ' ' || s.ctid || ' ' || s.xmax FROM {schema}.state s ORDER BY key");
    client.query(&text, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}
