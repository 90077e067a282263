//! Slots under leases on PostgreSQL: answer for answer as the book, under contention, swept in time, after an upgrade.

mod common;

use std::time::Duration;

use common::{builder, clear, client, fresh};
use throttlekit::store::{Beat, LeaseId, Owner, SlotAsk, SlotLease, SlotStep, SlotStore, Store, StoreError};
use throttlekit::{ManualClock, Timestamp};
use throttlekit_conformance::slots::{examine_slots, slot_storm};

/// `cargo xtask prove slots held` plays many more.
const WORLDS: u64 = 200;
const LIVES: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn slots_on_postgres_are_those_in_process() {
    clear("tk_slots_same").await;
    builder("tk_slots_same").connect().await.unwrap();
    let make = |clock| builder("tk_slots_same").connections(2).clock(clock).connect();
    let report = examine_slots(make, 0..WORLDS).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.saw_all(), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_a_storm_holds_the_ceiling_on_postgres() {
    let seen = slot_storm(fresh("tk_slots_storm").await, "slots", 25).await;
    assert_eq!((seen.leaked, seen.wrong), (0, 0), "{seen:?}");
    assert!(seen.at_once <= seen.most && seen.counted <= seen.most, "{seen:?}");
    assert!(seen.taken > 50 && seen.denied > 0, "{seen:?}");
}

fn ask(key: &str, lease: u128) -> SlotAsk<'_> {
    SlotAsk { key, lease: LeaseId(lease), owner: Owner(7), most: 2, lives: LIVES }
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
    assert!(denied > 10 && took >= LIVES && took < LIVES + LIVES / 2, "{took:?} after {denied}");
    let late = SlotLease { key: "k", lease: LeaseId(1), owner: Owner(7) };
    assert_eq!(store.heartbeat(&[late], LIVES).await, [Ok(Beat::Lost)]);
    assert_eq!(store.release(&[late]).await, [Ok(false)]);
}

#[tokio::test]
async fn slots_that_are_not_ours_are_told_and_reset_makes_room() {
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
    assert_eq!(store.sweep(1_000).await.unwrap(), 1, "one key");
    let left = format!("SELECT count(*) FROM {schema}.slots");
    assert_eq!(client().await.query_one(&left, &[]).await.unwrap().get::<_, i64>(0), 1, "and its leases");
}

/// A schema of version 3, without slots, is refused until it is upgraded.
#[tokio::test]
async fn a_schema_without_slots_is_upgraded() {
    let schema = "tk_slots_upgrade";
    fresh(schema).await;
    let older = "DROP FUNCTION tk_slots_upgrade.slot_acquire; DROP FUNCTION tk_slots_upgrade.slot_beat;
                 DROP FUNCTION tk_slots_upgrade.slot_release; DROP FUNCTION tk_slots_upgrade.slot_occupancy;
                 DROP TABLE tk_slots_upgrade.slots; DROP TABLE tk_slots_upgrade.slot_keys;
                 UPDATE tk_slots_upgrade.version SET number = 3";
    client().await.batch_execute(older).await.unwrap();
    let error = builder(schema).migrate_on_connect(false).connect().await.unwrap_err();
    assert!(matches!(&error, StoreError::Misconfigured(why) if why.contains("version 3, not 4")), "{error}");
    let store = builder(schema).connect().await.unwrap();
    assert!(matches!(store.acquire(&ask("k", 1)).await.unwrap().step, SlotStep::Admit { held: 1, .. }));
}
