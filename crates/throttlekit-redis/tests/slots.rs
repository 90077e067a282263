//! Slots under leases on real engines: the same responses as the reference model, under contention, behind a
//! fence, and beside foreign keys.

use std::time::Duration;

use crate::common::{cluster, on_each, plain, policy, single, valkey};
use crate::rig::{Server, until};
use throttlekit::clock::ManualClock;
use throttlekit::store::{
    HeartbeatOutcome, KeySpace, LeaseId, Owner, SlotLease, SlotRequest, SlotStep, SlotStore, StoreError,
};
use throttlekit_conformance::slots::{examine_slots, slot_contention, slots_after_a_clock_was_ahead};
use throttlekit_redis::{Failover, RedisStore, RedisStoreBuilder};

/// Scenarios per engine; `cargo xtask verify slots held` runs many more.
const SCENARIOS: u64 = 400;
const LIVES: Duration = Duration::from_millis(300);
const RECOVERY_MAX: Duration = Duration::from_secs(10);

async fn answers_as_the_book_does(builder: RedisStoreBuilder) {
    let store = builder.connect().await.unwrap();
    let make = move |clock| std::future::ready(Ok(store.at(clock)));
    let report = examine_slots(make, 0..SCENARIOS).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.saw_all(), "{report:?}");
}

on_each! { answers_as_the_book_does:
    single => slots_on_redis_are_those_in_process,
    cluster => slots_on_a_redis_cluster_are_those_in_process,
    valkey => slots_on_valkey_are_those_in_process,
}

async fn holds_the_ceiling_and_leaks_nothing(builder: RedisStoreBuilder) {
    let seen = slot_contention(builder.connect().await.unwrap(), &policy("slots"), 40).await;
    assert_eq!((seen.leaked, seen.wrong), (0, 0), "{seen:?}");
    assert!(seen.at_once <= seen.most && seen.counted <= seen.most, "{seen:?}");
    assert!(seen.taken > 50 && seen.denied > 0, "{seen:?}");
}

on_each! { holds_the_ceiling_and_leaks_nothing:
    single => slots_contention_holds_the_ceiling_on_redis,
    cluster => slots_contention_holds_the_ceiling_on_a_redis_cluster,
}

#[tokio::test]
async fn a_slot_taken_while_the_clock_was_ahead_comes_back_within_its_lease() {
    let clock = ManualClock::default();
    let store = single().connect().await.unwrap().at(clock.clone());
    slots_after_a_clock_was_ahead(&store, &clock, &key_of("ahead")).await.unwrap();
}

fn key_of(name: &str) -> String {
    KeySpace::slots("tk", &policy(name)).key(b"k", b"k")
}

fn ask(key: &str, lease: u128) -> SlotRequest<'_> {
    SlotRequest { key, lease: LeaseId(lease), owner: Owner(7), most: 2, lives: LIVES }
}

#[tokio::test]
async fn foreign_slot_keys_are_reported_and_left_alone() {
    let (store, mut beside) = (single().connect().await.unwrap(), plain("THROTTLEKIT_REDIS").await);
    let foreign: [&[&str]; 4] =
        [&["SET", "text"], &["RPUSH", "a list"], &["ZADD", "12", "no slots of ours"], &["ZADD", "12", "t"]];
    for words in foreign {
        let key = key_of("slots");
        redis::cmd(words[0]).arg(&key).arg(&words[1..]).exec_async(&mut beside).await.unwrap();
        let told = |answer: &Result<(), StoreError>| matches!(answer, Err(StoreError::BadState(said)) if said.contains(&*key));
        let lease = SlotLease { key: &key, lease: LeaseId(1), owner: Owner(7) };
        assert!(told(&store.acquire(&ask(&key, 1)).await.map(drop)), "{words:?}");
        assert!(told(&store.heartbeat(&[lease], LIVES).await.remove(0).map(drop)), "{words:?}");
        assert!(told(&store.release(&[lease]).await.remove(0).map(drop)), "{words:?}");
        assert!(told(&store.occupancy(&[&key]).await.map(drop)), "{words:?}");
        let left: bool = redis::cmd("EXISTS").arg(&key).query_async(&mut beside).await.unwrap();
        assert!(left, "{words:?}");
        redis::cmd("DEL").arg(&key).exec_async(&mut beside).await.unwrap();
    }
}

/// A key without held slots takes no memory: at once where the last is released, and by the server's own time
/// where its holders died.
#[tokio::test]
async fn keys_without_held_slots_take_no_memory() {
    let store = single().grace(Duration::from_millis(100)).connect().await.unwrap();
    let mut beside = plain("THROTTLEKIT_REDIS").await;
    let key = key_of("slots");
    store.acquire(&ask(&key, 1)).await.unwrap();
    let ttl: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut beside).await.unwrap();
    assert!((200..=401).contains(&ttl), "{ttl}");
    let lease = SlotLease { key: &key, lease: LeaseId(1), owner: Owner(7) };
    assert_eq!(store.release(&[lease]).await, [Ok(true)]);
    let left: bool = redis::cmd("EXISTS").arg(&key).query_async(&mut beside).await.unwrap();
    assert!(!left);
    store.acquire(&ask(&key, 2)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(450)).await;
    let left: bool = redis::cmd("EXISTS").arg(&key).query_async(&mut beside).await.unwrap();
    assert!(!left);
}

/// A lease is over by the server's clock at its end and not before, and then cannot be revived.
#[tokio::test]
async fn slots_of_holders_that_died_come_back_by_the_servers_clock() {
    let (store, key) = (single().connect().await.unwrap(), key_of("slots"));
    let first = store.acquire(&ask(&key, 1)).await.unwrap();
    store.acquire(&ask(&key, 2)).await.unwrap();
    let mut denied = 0;
    let took = loop {
        let answer = store.acquire(&ask(&key, 3)).await.unwrap();
        match answer.step {
            SlotStep::Admit { .. } => break answer.now.since(first.now),
            SlotStep::Deny(full) => {
                denied += 1;
                assert!(full.room_in.unwrap() <= LIVES);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    };
    assert!(denied > 10 && took >= LIVES && took < LIVES + LIVES / 2, "{took:?} after {denied}");
    let late = SlotLease { key: &key, lease: LeaseId(1), owner: Owner(7) };
    assert_eq!(store.heartbeat(&[late], LIVES).await, [Ok(HeartbeatOutcome::Lost)]);
    assert_eq!(store.release(&[late]).await, [Ok(false)]);
}

/// A server that cannot vouch for leases of the last lifetime admits nothing; one that can does.
#[tokio::test]
async fn a_fence_applies_to_slots() {
    // Of its own: other tests leave a lineage record by their clocks.
    let server = Server::start(&[]).await;
    let fence = Failover::Fence { isolation: Duration::from_millis(1) };
    let store = RedisStore::builder(server.url()).deadline(RECOVERY_MAX).failover(fence);
    let (store, key) = (store.connect().await.unwrap(), key_of("slots"));
    let day = SlotRequest { lives: Duration::from_secs(86_400), ..ask(&key, 1) };
    let told = store.acquire(&day).await;
    assert!(told.as_ref().is_err_and(StoreError::is_outage), "{told:?}");
    assert_eq!(store.occupancy(&[&key]).await.unwrap()[0].held, 0, "and takes nothing");
    // The server is soon up for longer than this.
    let brief = SlotRequest { lives: Duration::from_millis(50), ..ask(&key, 2) };
    until("a slot", RECOVERY_MAX, async || {
        store.acquire(&brief).await.is_ok_and(|answer| matches!(answer.step, SlotStep::Admit { .. }))
    })
    .await;
}

/// Without replicas no lease is acknowledged: it is not handed out, and expires.
#[tokio::test]
async fn a_slot_is_not_granted_before_replicas_have_it() {
    let wait = Failover::Wait { replicas: 1, within: Duration::from_millis(20) };
    let store = single().failover(wait).connect().await.unwrap();
    let key = key_of("slots");
    let told = store.acquire(&ask(&key, 1)).await;
    assert!(told.as_ref().is_err_and(StoreError::is_outage), "{told:?}");
    let lease = SlotLease { key: &key, lease: LeaseId(1), owner: Owner(7) };
    let heartbeat = store.heartbeat(&[lease], LIVES).await.remove(0);
    assert!(heartbeat.as_ref().is_err_and(StoreError::is_outage), "{heartbeat:?}");
    assert_eq!(store.release(&[lease]).await, [Ok(true)], "it was entered all the same");
}
