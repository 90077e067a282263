//! Membership records on real engines: swapped as in process, under races, and beside foreign keys.

use std::time::Duration;

use crate::common::{cluster, on_each, plain, policy, single, valkey};
use crate::rig::Server;
use throttlekit::clock::ManualClock;
use throttlekit::store::{
    KeySpace, MEMBERSHIP_BYTES_MAX, MembershipRecord, MembershipStore, StoreError, Swapped, heartbeat,
};
use throttlekit_conformance::membership::{examine_membership, race};
use throttlekit_core::concurrency::division::{
    Combine, NodeId, NodeReport, Rebalancer, ReportResponse, Split,
};
use throttlekit_redis::{Failover, RedisStore, RedisStoreBuilder};

const SCENARIOS: u64 = 150;
const MINUTE: Duration = Duration::from_secs(60);

async fn swaps_as_promised(builder: RedisStoreBuilder) {
    let store = builder.connect().await.unwrap();
    let make = move |clock| std::future::ready(Ok(store.at(clock)));
    let report =
        examine_membership(make, 0..SCENARIOS).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.swapped > 50 && report.newer > 50, "{report:?}");
}

on_each! { swaps_as_promised:
    single => fleet_rolls_are_swapped_on_redis_as_promised,
    cluster => fleet_rolls_are_swapped_on_a_redis_cluster_as_promised,
    valkey => fleet_rolls_are_swapped_on_valkey_as_promised,
}

async fn loses_no_heartbeat(builder: RedisStoreBuilder) {
    let key = KeySpace::membership("tk", &policy("race"));
    let seen = race(builder.connect().await.unwrap(), &key, 8, 25).await.unwrap();
    assert!(seen.granted > 100 && seen.lost > 0, "{seen:?}");
}

on_each! { loses_no_heartbeat:
    single => fleet_rolls_lose_no_heartbeat_of_a_race_on_redis,
    cluster => fleet_rolls_lose_no_heartbeat_of_a_race_on_a_redis_cluster,
    valkey => fleet_rolls_lose_no_heartbeat_of_a_race_on_valkey,
}

#[tokio::test]
async fn a_record_that_is_not_ours_is_reported_and_left_alone() {
    let (store, key) = (single().connect().await.unwrap(), KeySpace::membership("tk", &policy("membership")));
    let mut beside = plain("THROTTLEKIT_REDIS").await;
    redis::cmd("SET").arg(&key).arg("not ours").arg("PX").arg(60_000).exec_async(&mut beside).await.unwrap();
    for told in [store.load(&key).await.map(drop), store.swap(&key, 0, b"a", MINUTE).await.map(drop)] {
        assert!(matches!(&told, Err(StoreError::BadState(said)) if said.contains(&*key)), "{told:?}");
    }
    let left: String = redis::cmd("GET").arg(&key).query_async(&mut beside).await.unwrap();
    assert_eq!(left, "not ours");

    redis::cmd("DEL").arg(&key).exec_async(&mut beside).await.unwrap();
    store.swap(&key, 0, b"not a membership record", MINUTE).await.unwrap();
    let told = heartbeat(&store, &key, &rebalancer(), MINUTE, &report(1, 1)).await;
    assert!(matches!(&told, Err(StoreError::BadState(said)) if said.contains(&*key)), "{told:?}");
}

#[tokio::test]
async fn a_record_is_kept_for_as_long_as_configured_and_only_if_its_length_is_valid() {
    let (store, key) = (single().connect().await.unwrap(), KeySpace::membership("tk", &policy("membership")));
    store.swap(&key, 0, &[7; MEMBERSHIP_BYTES_MAX], MINUTE).await.unwrap();
    let mut beside = plain("THROTTLEKIT_REDIS").await;
    let left: u64 = redis::cmd("PTTL").arg(&key).query_async(&mut beside).await.unwrap();
    assert!((50_000..=60_000).contains(&left), "{left} ms");
    let kept = store.load(&key).await.unwrap();
    assert_eq!(kept.bytes, [7; MEMBERSHIP_BYTES_MAX]);
    let long = store.swap(&key, kept.version, &[7; MEMBERSHIP_BYTES_MAX + 1], MINUTE).await;
    assert!(matches!(long, Err(StoreError::Misconfigured(_))), "{long:?}");
}

fn rebalancer() -> Rebalancer {
    let (combine, split, lives) = (Combine::Min, Split::Equal, Duration::from_millis(500));
    Rebalancer { combine, split, initial: 6, most: 6, lives, linger: Duration::ZERO }
}

fn report(node: u128, heartbeat: u64) -> NodeReport {
    let node = NodeId(node);
    NodeReport { node, heartbeat, applied: 0, holds: 0, in_flight: 0, limit: 0, wants: 0, leaving: false }
}

/// A server that started over may have forgotten grants. It waits for the end of all grants that may still be
/// in use; then the membership record starts empty, revokes nothing that is held, and raises no share before
/// the forgotten grants have expired.
#[tokio::test]
async fn a_fence_starts_a_new_record_under_another_server() {
    let server = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let isolation = Duration::from_millis(300);
    let connect = async || -> RedisStore {
        let url = format!("redis://127.0.0.1:{}", server.port);
        RedisStore::builder(url).failover(Failover::Fence { isolation }).connect().await.unwrap()
    };
    let (store, key) = (connect().await, KeySpace::membership("tk", "fence"));
    let granted = async |store: &RedisStore, report: &NodeReport| loop {
        match heartbeat(store, &key, &rebalancer(), MINUTE, report).await {
            Ok(heard) => match heard.response {
                ReportResponse::Grant(grant) => break grant,
                other => panic!("{other:?}"),
            },
            Err(error) if error.is_outage() => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error}"),
        }
    };
    let none = granted(&store, &report(1, 1)).await;
    assert_eq!(none.share, 0, "a new record is quiet");
    tokio::time::sleep(Duration::from_millis(510)).await;
    let all = granted(&store, &report(1, 2)).await;
    assert_eq!(all.share, 6);

    let mut beside = plain_at(server.port).await;
    let before: Vec<u8> = redis::cmd("GET").arg(&key).query_async(&mut beside).await.unwrap();
    // Another id, as after a promotion or a start.
    redis::cmd("SET").arg(&key).arg(foreign_seal(&before)).exec_async(&mut beside).await.unwrap();
    let held = NodeReport { applied: all.number, holds: 6, ..report(1, 3) };
    let kept = granted(&store, &held).await;
    assert_eq!((kept.share, kept.number), (6, all.number + 1), "what it holds is not taken from it");
    assert_eq!(granted(&store, &report(2, 1)).await.share, 0);
}

/// Returns the same membership record, written by another server.
fn foreign_seal(stored: &[u8]) -> Vec<u8> {
    let text = stored.iter().position(|&byte| byte == b' ').unwrap();
    let (version, rest) = stored.split_at(text + 1);
    let after = rest.iter().position(|&byte| byte == b' ').unwrap();
    [version, &b"0".repeat(40), &rest[after..]].concat()
}

async fn plain_at(port: u16) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// A replica that receives nothing blocks the grant of a heartbeat.
#[tokio::test]
async fn a_swap_without_a_replica_acknowledgment_fails() {
    let wait = Failover::Wait { replicas: 1, within: Duration::from_millis(50) };
    let store = single().failover(wait).connect().await.unwrap();
    let key = KeySpace::membership("tk", &policy("membership"));
    let swapped = store.swap(&key, 0, b"a", MINUTE).await;
    assert!(swapped.as_ref().is_err_and(StoreError::is_outage), "{swapped:?}");
    let MembershipRecord { version, bytes, .. } = store.load(&key).await.unwrap();
    assert_eq!(bytes, b"a", "it lies there, and grants nothing");
    let at = store.at(ManualClock::default());
    assert!(matches!(at.swap(&key, version + 1, b"b", MINUTE).await, Ok(Swapped::Newer(_))));
}
