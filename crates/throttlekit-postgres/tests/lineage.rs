//! Servers that have lost charges: no decision beyond the limit is labeled exact. `cargo xtask verify
//! label-truth` runs many more rounds, and checks that seeded bugs are found.

use std::time::Duration;

use throttlekit::store::Store;
use throttlekit::{Guarantee, Limit, SharedLimiter};
use throttlekit_postgres::{Durability, PostgresStore, PostgresStoreBuilder, SchemaWarning};
use throttlekit_verify::postgres::{LIMIT, Server, Window, crash_round, failover_round, restore_round};

fn builder(url: &str) -> PostgresStoreBuilder {
    PostgresStore::builder(url).schema("lineage").deadline(Duration::from_secs(2)).migrate_on_connect(true)
}

async fn make(url: &str, limit: Limit) -> SharedLimiter<PostgresStore> {
    limiter(builder(url), limit).await
}

async fn limiter(builder: PostgresStoreBuilder, limit: Limit) -> SharedLimiter<PostgresStore> {
    SharedLimiter::new(builder.connect().await.unwrap(), "p", limit).unwrap()
}

/// Checks that charges were lost, no decision beyond the limit was labeled exact, and healthy ones were.
fn judge(mode: &str, window: &Window) {
    println!("{mode}: {} of {LIMIT} admitted, {:?}", window.admitted, window.labels);
    assert!(window.is_over(), "{mode}: charges were lost: {window:?}");
    assert_eq!(window.beyond_exact, 0, "{mode}: {window:?}");
    assert_eq!(window.healthy.0, window.healthy.1, "{mode}: {window:?}");
    assert!(window.came_back, "{mode}: {window:?}");
}

fn started() -> Server {
    let server = Server::create();
    server.start();
    server
}

/// An asynchronous standby is promoted with stale rows; a process starts later; the old primary is started
/// beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_lost_charges_bounds_responses_in_every_process() {
    let mut server = started();
    for (mode, window) in failover_round(&mut server, &make).await {
        judge(mode, &window);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_the_files_bounds_responses_also_where_its_log_has_overtaken() {
    for overtaken in [false, true] {
        let server = started();
        let (mode, window) = restore_round(&server, overtaken, &make).await;
        judge(mode, &window);
        let fresh = make(&server.url(), Window::limit()).await;
        let label = fresh.check("k").await.unwrap().guarantee.label();
        assert_eq!(label, "bounded", "a process that comes later reads of it in the table");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_loses_nothing_and_leaves_responses_exact() {
    let (_, window) = crash_round(&started(), &make).await;
    assert_eq!((window.admitted, window.labels.get("bounded")), (LIMIT, None), "{window:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlogged_table_loses_everything_and_is_never_exact() {
    let make = async |url: &str, limit| limiter(builder(url).durability(Durability::Unlogged), limit).await;
    let (_, window) = crash_round(&started(), &make).await;
    assert!(window.is_over(), "{window:?}");
    assert_eq!(window.labels.get("exact"), None, "{window:?}");
}

/// An ordinary role gets the warning too, although it may not read how standbys are attached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asynchronous_standby_is_a_warning() {
    let primary = started();
    let owner = make(&primary.url(), Window::limit()).await;
    assert_eq!(owner.store().report().unwrap().warnings, []);
    primary.sql(&[
        "CREATE ROLE app LOGIN",
        "GRANT USAGE ON SCHEMA lineage TO app",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA lineage TO app",
    ]);
    let _standby = primary.standby();
    let theirs = primary.url().replace("postgres@", "app@");
    let app = builder(&theirs).migrate_on_connect(false).connect().await.unwrap();
    for store in [owner.store(), &app] {
        assert_eq!(store.check().await.unwrap().warnings, [SchemaWarning::AsynchronousStandby]);
        assert_eq!(store.guarantee(), Guarantee::Exact, "nothing is lost yet");
    }
}
