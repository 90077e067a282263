//! Slots under leases on PostgreSQL: the same responses as the reference model, under contention, swept in
//! time, after an upgrade.

use std::time::Duration;

use crate::common::{builder, clear, client, fresh};
use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::store::{
    HeartbeatOutcome, LeaseId, Owner, SlotLease, SlotRequest, SlotStep, SlotStore, Store, StoreError,
};
use throttlekit_conformance::slots::{examine_slots, slot_contention, slots_after_a_clock_was_ahead};
use throttlekit_postgres::SchemaWarning;
use tokio_postgres::Client;

/// `cargo xtask verify slots held` runs many more.
const SCENARIOS: u64 = 200;
const LIVES: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn slots_on_postgres_are_those_in_process() {
    clear("tk_slots_same").await;
    builder("tk_slots_same").connect().await.unwrap();
    let make = |clock| builder("tk_slots_same").connections(2).clock(clock).connect();
    let report = examine_slots(make, 0..SCENARIOS).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.saw_all(), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_contention_holds_the_ceiling_on_postgres() {
    let seen = slot_contention(fresh("tk_slots_contention").await, "slots", 25).await;
    assert_eq!((seen.leaked, seen.wrong), (0, 0), "{seen:?}");
    assert!(seen.at_once <= seen.most && seen.counted <= seen.most, "{seen:?}");
    assert!(seen.taken > 50 && seen.denied > 0, "{seen:?}");
}

#[tokio::test]
async fn a_slot_taken_while_the_clock_was_ahead_comes_back_within_its_lease() {
    let (schema, clock) = ("tk_slots_ahead", ManualClock::default());
    clear(schema).await;
    let store = builder(schema).clock(clock.clone()).connect().await.unwrap();
    slots_after_a_clock_was_ahead(&store, &clock, "ahead").await.unwrap();
}

fn ask(key: &str, lease: u128) -> SlotRequest<'_> {
    SlotRequest { key, lease: LeaseId(lease), owner: Owner(7), most: 2, lives: LIVES }
}

#[tokio::test]
async fn slots_of_holders_that_died_come_back_by_the_servers_clock() {
    let store = fresh("tk_slots_died").await;
    let first = store.acquire(&ask("k", 1)).await.unwrap();
    store.acquire(&ask("k", 2)).await.unwrap();
    let mut denied = 0;
    let took = loop {
        let answer = store.acquire(&ask("k", 3)).await.unwrap();
        if matches!(answer.step, SlotStep::Admit { .. }) {
            break answer.now.since(first.now);
        }
        denied += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    // On a busy machine requests are rare, and late.
    assert!(denied > 0 && took >= LIVES && took < 10 * LIVES, "{took:?} after {denied}");
    let late = SlotLease { key: "k", lease: LeaseId(1), owner: Owner(7) };
    assert_eq!(store.heartbeat(&[late], LIVES).await, [Ok(HeartbeatOutcome::Lost)]);
    assert_eq!(store.release(&[late]).await, [Ok(false)]);
}

#[tokio::test]
async fn foreign_slot_rows_are_reported_and_removed_by_reset() {
    let (store, client) = (fresh("tk_slots_bad").await, client().await);
    for (i, row) in ["-1, 0, 0", "0, -5, 0", "200000, 9, 9"].iter().enumerate() {
        let key = format!("bad{i}");
        let insert = format!("INSERT INTO tk_slots_bad.slot_keys VALUES ('{key}', {row})");
        client.batch_execute(&insert).await.unwrap();
        let told = store.acquire(&ask(&key, 1)).await;
        assert!(matches!(&told, Err(StoreError::BadState(said)) if said.contains(&*key)), "{row}: {told:?}");
        store.reset(&[&key]).await.unwrap();
        assert!(matches!(store.acquire(&ask(&key, 1)).await.unwrap().step, SlotStep::Admit { held: 1, .. }));
    }
}

#[tokio::test]
async fn leases_are_swept_when_they_have_been_over_for_the_grace() {
    let schema = "tk_slots_swept";
    clear(schema).await;
    let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
    let store = builder(schema).clock(clock.clone()).grace(Duration::from_secs(2)).connect().await.unwrap();
    store.acquire(&ask("died", 1)).await.unwrap();
    store.acquire(&ask("died", 2)).await.unwrap();
    clock.advance(Duration::from_secs(2) + LIVES);
    assert_eq!(store.sweep(1_000).await.unwrap(), 0);
    store.acquire(&ask("lives", 3)).await.unwrap();
    clock.advance(Duration::from_micros(1));
    assert_eq!(store.sweep(1_000).await.unwrap(), 3, "one key and its two");
    let left = format!("SELECT count(*) FROM {schema}.slots");
    assert_eq!(client().await.query_one(&left, &[]).await.unwrap().get::<_, i64>(0), 1, "and its leases");
}

/// A sweep deletes at most its limit of rows, leases included, and a key's row counts the remaining ones.
#[tokio::test]
async fn a_sweep_bounds_the_leases_that_go_too() {
    let schema = "tk_slots_swept_bounded";
    clear(schema).await;
    let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
    let store = builder(schema).clock(clock.clone()).grace(Duration::from_secs(2)).connect().await.unwrap();
    for lease in 0..10 {
        store.acquire(&SlotRequest { most: 10, ..ask("died", lease) }).await.unwrap();
    }
    clock.advance(Duration::from_secs(3));
    let left = format!("SELECT held, (SELECT count(*)::int FROM {schema}.slots) FROM {schema}.slot_keys");
    let client = client().await;
    for rest in [6, 2] {
        assert_eq!(store.sweep(4).await.unwrap(), 4);
        let row = client.query_one(&left, &[]).await.unwrap();
        assert_eq!((row.get::<_, i32>(0), row.get::<_, i32>(1)), (rest, rest), "counted, and there");
    }
    assert_eq!(store.sweep(2).await.unwrap(), 2, "the last leases, not yet the key");
    assert_eq!(store.sweep(4).await.unwrap(), 1, "the key");
    assert!(client.query_opt(&left, &[]).await.unwrap().is_none());
    assert!(matches!(store.acquire(&ask("died", 11)).await.unwrap().step, SlotStep::Admit { held: 1, .. }));
}

/// Downgrades a schema to version 3: removes the additions of version 4, and reverts its changes.
fn older(schema: &str) -> String {
    let added = [
        "slot_acquire",
        "slot_beat",
        "slot_release",
        "slot_occupancy",
        "slots_take",
        "slots_changed",
        "slots_advance",
        "swap_roll",
    ];
    let functions = added.map(|name| format!("DROP FUNCTION {schema}.{name};")).concat();
    let tables = ["slots", "slot_keys", "roll"].map(|name| format!("DROP TABLE {schema}.{name};")).concat();
    format!(
        "{functions} {tables}
         CREATE OR REPLACE FUNCTION {schema}.forget(p_keys text[]) RETURNS void LANGUAGE sql
         AS $$ DELETE FROM {schema}.state WHERE key = ANY (p_keys) $$;
         CREATE OR REPLACE FUNCTION {schema}.sweep(p_now bigint, p_grace bigint, p_max bigint) RETURNS bigint LANGUAGE sql
         AS $$ SELECT 0::bigint $$;
         UPDATE {schema}.version SET number = 3"
    )
}

/// A schema of version 3, without slots, is rejected until it is upgraded.
#[tokio::test]
async fn a_schema_without_slots_is_upgraded() {
    let schema = "tk_slots_upgrade";
    fresh(schema).await;
    client().await.batch_execute(&older(schema)).await.unwrap();
    let error = builder(schema).migrate_on_connect(false).connect().await.unwrap_err();
    assert!(matches!(&error, StoreError::Misconfigured(why) if why.contains("version 3, not 7")), "{error}");
    let store = builder(schema).connect().await.unwrap();
    for _ in 0..2 {
        assert!(matches!(store.acquire(&ask("k", 1)).await.unwrap().step, SlotStep::Admit { held: 1, .. }));
        store.reset(&["k"]).await.unwrap();
    }
}

/// Before version 6 a key's row had an instant where the longest lifetime is now. Its leases are held for
/// their time.
#[tokio::test]
async fn a_schema_of_version_5_keeps_its_leases() {
    let schema = "tk_slots_version_5";
    clear(schema).await;
    builder(schema).migrate().await.unwrap();
    let (clock, now) =
        (ManualClock::at(Timestamp::from_millis(1_800_000_000_000)), 1_800_000_000_000_000_i64);
    let ends = now + LIVES.as_micros() as i64;
    let older = format!(
        "ALTER TABLE {schema}.slot_keys RENAME COLUMN longest TO last; UPDATE {schema}.version SET number = 5;
         INSERT INTO {schema}.slot_keys VALUES ('k', 1, {now}, {ends});
         INSERT INTO {schema}.slots VALUES ('k', '{:032x}', '{:032x}', {ends})",
        1, 7
    );
    client().await.batch_execute(&older).await.unwrap();
    let store = builder(schema).clock(clock.clone()).connect().await.unwrap();
    let one = |lease| SlotRequest { most: 1, ..ask("k", lease) };
    clock.advance(LIVES - Duration::from_micros(1));
    assert!(matches!(store.acquire(&one(2)).await.unwrap().step, SlotStep::Deny(_)));
    clock.advance(Duration::from_micros(1));
    assert!(matches!(store.acquire(&one(2)).await.unwrap().step, SlotStep::Admit { held: 1, .. }));
}

/// Every table of slots is checked: an unlogged one, which a crash empties, is reported.
#[tokio::test]
async fn an_unlogged_table_of_slots_is_a_warning() {
    let schema = "tk_slots_unlogged";
    fresh(schema).await;
    client().await.batch_execute(&format!("ALTER TABLE {schema}.slot_keys SET UNLOGGED")).await.unwrap();
    let report = builder(schema).connect().await.unwrap().check().await.unwrap();
    assert!(report.warnings.contains(&SchemaWarning::Unlogged), "{report:?}");
}

/// Waits until a session waits for a row that another holds.
async fn waits(watch: &Client, pid: i32) {
    let blocked = "SELECT cardinality(pg_blocking_pids($1)) > 0";
    for _ in 0..2_000 {
        if watch.query_one(blocked, &[&pid]).await.unwrap().get(0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("nobody waits");
}

/// A call names a key without a row, and waits for the row of another. Meanwhile the first one's row is
/// inserted, and a second lease in it is about to be committed. Rows that are not locked are left alone, so
/// the count stays that of the leases.
async fn a_row_that_comes_meanwhile_is_left_alone(schema: &str, call: &str) {
    let store = fresh(schema).await;
    store.acquire(&ask("later", 9)).await.unwrap();
    let (watch, holder, second, caller) = (client().await, client().await, client().await, client().await);
    let lock = format!("BEGIN; SELECT 1 FROM {schema}.slot_keys WHERE key = 'later' FOR UPDATE");
    holder.batch_execute(&lock).await.unwrap();
    let pid: i32 = caller.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let called = tokio::spawn({
        let [lease, owner] = [1, 7].map(|name| format!("00000000-0000-0000-0000-{name:012}"));
        let call = format!("SELECT {schema}.{call}").replace(
            "NAMES",
            &format!("NULL, ARRAY['early', 'later'], ARRAY[1], ARRAY['{lease}'], ARRAY['{owner}']"),
        );
        async move { caller.query_one(&call, &[]).await.map(|row| row.get::<_, Vec<i64>>(0)) }
    });
    waits(&watch, pid).await;
    store.acquire(&SlotRequest { lives: LIVES * 100, ..ask("early", 1) }).await.unwrap();
    let enter = format!(
        "BEGIN; SELECT {schema}.slot_acquire(NULL, 'early', gen_random_uuid(), gen_random_uuid(), 2, 30000000)"
    );
    second.batch_execute(&enter).await.unwrap();
    holder.batch_execute("COMMIT").await.unwrap();
    // Long enough for the error to occur.
    tokio::time::sleep(Duration::from_millis(300)).await;
    second.batch_execute("COMMIT").await.unwrap();
    let told = called.await.unwrap().unwrap();
    assert_eq!(told.last(), Some(&0), "it held nothing when it was asked: {told:?}");
    let counts = format!(
        "SELECT held, (SELECT count(*)::int FROM {schema}.slots WHERE key = 'early') FROM {schema}.slot_keys WHERE key = 'early'"
    );
    let row = watch.query_one(&counts, &[]).await.unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, i32>(1)), (2, 2), "counted, and there");
    assert!(matches!(store.acquire(&ask("early", 3)).await.unwrap().step, SlotStep::Deny(_)));
    let first = SlotLease { key: "early", lease: LeaseId(1), owner: Owner(7) };
    assert_eq!(store.release(&[first]).await, [Ok(true)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_does_not_touch_a_row_inserted_meanwhile() {
    a_row_that_comes_meanwhile_is_left_alone("tk_slots_late_release", "slot_release(NAMES)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_does_not_touch_a_row_inserted_meanwhile() {
    a_row_that_comes_meanwhile_is_left_alone("tk_slots_late_heartbeat", "slot_beat(NAMES, 30000000)").await;
}
