//! `label-truth`: no decision beyond the limit is labeled `exact`, whatever the server loses while we are
//! connected; and a fence admits none.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::policy;
use crate::rig::{self, Cluster, DAY, Limiter, Pair, Server, until};
use throttlekit::clock::ManualClock;
use throttlekit::leasing::{Batch, Leasing};
use throttlekit::rate::Timestamp;
use throttlekit::store::StoreError;
use throttlekit::{Answer, Call, Guarantee, Limit};
use throttlekit_redis::{Failover, RedisStore, RedisStoreBuilder};

pub(crate) const LIMIT: u64 = 10;
const TICK: Duration = Duration::from_micros(1);
pub(crate) const RECOVERY_MAX: Duration = Duration::from_secs(20);
const ISOLATION: Duration = Duration::from_millis(100);
pub(crate) const PLAIN: Failover = Failover::Async { sample: None };
pub(crate) const FENCE: Failover = Failover::Fence { isolation: ISOLATION };
const WAIT: Failover = Failover::Wait { replicas: 1, within: Duration::from_secs(2) };
pub(crate) const UNKNOWN: Guarantee = Guarantee::Bounded(u64::MAX);

/// Commands by which a server loses states while connections stay.
pub(crate) const LOSSES: [(&str, &[&str]); 5] = [
    ("FLUSHALL", &["FLUSHALL"]),
    ("FLUSHDB", &["FLUSHDB"]),
    ("SWAPDB", &["SWAPDB 0 1"]),
    ("volatile-ttl", &["CONFIG SET maxmemory-policy volatile-ttl", "CONFIG SET maxmemory 1"]),
    ("allkeys-lru", &["CONFIG SET maxmemory-policy allkeys-lru", "CONFIG SET maxmemory 1"]),
];

pub(crate) async fn lose(server: &Server, how: &[&str]) {
    for command in how {
        server.ask::<()>(command).await;
    }
    // Evictions continue in the background while memory is short.
    if how.len() > 1 {
        until("states are evicted", RECOVERY_MAX, async || {
            server.ask::<Vec<String>>("KEYS tk:*w:*").await.is_empty()
        })
        .await;
        server.ask::<()>("CONFIG SET maxmemory 0").await;
        server.ask::<()>("CONFIG SET maxmemory-policy noeviction").await;
    }
}

pub(crate) fn noon() -> ManualClock {
    ManualClock::at(Timestamp::from_micros(
        1_800_000_000_000_000 / 86_400_000_000 * 86_400_000_000 + 43_200_000_000,
    ))
}

fn day() -> Limit {
    Limit::fixed_window(LIMIT, DAY).unwrap()
}

async fn store(url: String, clock: &ManualClock, failover: Failover) -> RedisStore {
    let builder: RedisStoreBuilder = RedisStore::builder(url).failover(failover).clock(clock.clone());
    builder.deadline(Duration::from_secs(5)).connect().await.unwrap()
}

pub(crate) async fn limiter(url: String, clock: &ManualClock, failover: Failover, policy: &str) -> Limiter {
    Limiter::new(store(url, clock, failover).await, policy, day()).unwrap()
}

/// Creates a limiter that has known its server for longer than a window, so that its labels are exact.
pub(crate) async fn vouched(url: String, clock: &ManualClock, failover: Failover, policy: &str) -> Limiter {
    let limiter = limiter(url, clock, failover, policy).await;
    limiter.check("first").await.unwrap();
    clock.advance(2 * DAY);
    assert_eq!(limiter.check("first").await.unwrap().guarantee, Guarantee::Exact, "healthy");
    limiter
}

/// Returns the first response of the store itself.
async fn answer(limiter: &Limiter, key: &str) -> Answer {
    until("good answers", RECOVERY_MAX, async || limiter.check("observer").await.unwrap().outage.is_none())
        .await;
    limiter.check(key).await.unwrap()
}

/// Admits as many as possible. Returns their number, and the number labeled exact.
pub(crate) async fn take(limiter: &Limiter, key: &str) -> (u64, u64) {
    let (mut admitted, mut exact) = (0, 0);
    for _ in 0..2 * LIMIT {
        let answer = limiter.check(key).await.unwrap();
        admitted += u64::from(answer.decision.allowed);
        exact += u64::from(answer.decision.allowed && answer.guarantee == Guarantee::Exact);
    }
    (admitted, exact)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_while_connected_is_labeled_at_once_and_until_the_window_has_passed() {
    let (server, clock) = (Server::start(&[]).await, noon());
    for (name, how) in LOSSES {
        let policy = policy("loss");
        let here = vouched(server.url(), &clock, PLAIN, &policy).await;
        let there = limiter(server.url(), &clock, PLAIN, &policy).await;
        assert_eq!(take(&here, "alice").await, (LIMIT, LIMIT), "{name}");
        assert_eq!(take(&there, "alice").await, (0, 0), "{name}");
        lose(&server, how).await;
        let newcomer = limiter(server.url(), &clock, PLAIN, &policy).await;
        for limiter in [&there, &here, &newcomer] {
            let answer = limiter.check("alice").await.unwrap();
            assert_eq!((answer.decision.allowed, answer.guarantee), (true, UNKNOWN), "{name}");
        }
        clock.advance(DAY - TICK);
        for limiter in [&here, &there, &newcomer] {
            assert_eq!(limiter.check("alice").await.unwrap().guarantee, UNKNOWN, "{name}: not yet");
        }
        clock.advance(TICK);
        for limiter in [&here, &there, &newcomer] {
            assert_eq!(limiter.check("alice").await.unwrap().guarantee, Guarantee::Exact, "{name}: again");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_databases_are_detected_by_existing_and_new_stores() {
    let server = Server::start(&[]).await;
    let (clock, policy) = (noon(), policy("swap"));
    let here = vouched(server.url(), &clock, PLAIN, &policy).await;
    server.ask::<()>("SWAPDB 0 1").await;
    assert_eq!(here.check("alice").await.unwrap().guarantee, UNKNOWN);
    clock.advance(2 * DAY);
    assert_eq!(take(&here, "alice").await, (LIMIT, LIMIT));
    server.ask::<()>("SWAPDB 0 1").await;
    let newcomer = limiter(server.url(), &clock, PLAIN, &policy).await;
    assert_eq!(take(&newcomer, "alice").await, (LIMIT, 0));
    assert_eq!(here.check("alice").await.unwrap().guarantee, UNKNOWN);
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_count_a_flush_as_lost_by_this_process() {
    let server = Server::start(&[]).await;
    let (clock, policy) = (noon(), policy("sampled"));
    let sampled = Failover::Async { sample: Some(Duration::from_millis(10)) };
    let limiter = vouched(server.url(), &clock, sampled, &policy).await;
    assert_eq!(take(&limiter, "alice").await, (LIMIT, LIMIT));
    lose(&server, LOSSES[0].1).await;
    let answer = limiter.check("alice").await.unwrap();
    let exposure = limiter.store().exposure();
    assert!(exposure.changes == 1 && exposure.lost_max >= LIMIT, "{exposure:?}");
    assert_eq!(answer.guarantee, Guarantee::Bounded(exposure.lost_max));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_labeled_with_and_without_an_append_only_file() {
    for (options, kept) in [(&[][..], 0), (&["--appendonly", "yes"][..], LIMIT)] {
        let mut server = Server::start(options).await;
        let (clock, policy) = (noon(), policy("restart"));
        let limiter = vouched(server.url(), &clock, PLAIN, &policy).await;
        assert_eq!(take(&limiter, "alice").await, (LIMIT, LIMIT));
        server.kill();
        server.up().await;
        answer(&limiter, "bob").await;
        assert_eq!(take(&limiter, "alice").await, (LIMIT - kept, 0), "{options:?}");
        clock.advance(DAY);
        assert_eq!(take(&limiter, "alice").await, (LIMIT, LIMIT), "{options:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_promotion_labels_are_bounded_and_exact_where_all_replicas_were_waited_for() {
    for (failover, label) in [(PLAIN, UNKNOWN), (WAIT, Guarantee::Exact)] {
        let mut pair = Pair::start().await;
        let (clock, policy) = (noon(), policy("promoted"));
        let limiter = vouched(pair.way.url(), &clock, failover, &policy).await;
        assert_eq!(take(&limiter, "alice").await, (LIMIT, LIMIT));
        pair.be_in_step().await;
        pair.primary.kill();
        pair.promote().await;
        // No replica is left to wait for, so under `WAIT` a charge would be an outage: a denial shows the
        // label.
        until("good answers", RECOVERY_MAX, async || limiter.check("alice").await.unwrap().outage.is_none())
            .await;
        let answer = limiter.check("alice").await.unwrap();
        assert_eq!((answer.decision.allowed, answer.guarantee), (false, label), "{failover:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_replicas_does_not_vouch_for_a_restart() {
    let mut pair = Pair::start().await;
    let (clock, policy) = (noon(), policy("waits"));
    let limiter = vouched(pair.way.url(), &clock, WAIT, &policy).await;
    // A dump from before the charges: the server that loads it names its former id, as a promoted one does.
    pair.primary.ask::<()>("SAVE").await;
    assert_eq!(take(&limiter, "alice").await, (LIMIT, LIMIT));
    pair.primary.kill();
    pair.primary.up().await;
    pair.follow().await;
    answer(&limiter, "bob").await;
    assert_eq!(take(&limiter, "alice").await, (LIMIT, 0));
}

/// Creates a node that leases a few units at a time.
fn leased(store: RedisStore, policy: &str, limit: Limit) -> Limiter {
    let leasing = Leasing::new().batch(Batch::Fixed(4)).remember_denials(Duration::ZERO).return_after(None);
    Limiter::builder(store, policy, limit).leased_with(leasing).build().unwrap()
}

/// Lets two nodes lease from one server, all they can before a loss and all they can after it. Returns the
/// admitted units, and those labeled exact.
async fn lend_across_a_loss(
    server: &Server,
    clock: &ManualClock,
    failover: Failover,
    how: &[&str],
) -> (u64, u64) {
    let policy = policy("lent");
    vouched(server.url(), clock, failover, &policy).await;
    let node = async || leased(store(server.url(), clock, failover).await, &policy, day());
    let nodes = [node().await, node().await];
    let (mut admitted, mut exact) = (0, 0);
    for round in 0..2 {
        if round == 1 {
            assert_eq!(admitted, LIMIT, "before the loss");
            lose(server, how).await;
        }
        for _ in 0..2 * LIMIT {
            for node in &nodes {
                let answer = node.check(Call::by("alice")).await.unwrap();
                admitted += u64::from(answer.decision.allowed);
                exact += u64::from(answer.decision.allowed && answer.guarantee == Guarantee::Exact);
            }
        }
    }
    (admitted, exact)
}

/// Only units leased before the loss may be labeled exact.
#[tokio::test(flavor = "multi_thread")]
async fn units_leased_after_a_loss_are_bounded() {
    let (server, clock) = (Server::start(&[]).await, noon());
    for (name, how) in LOSSES {
        let (admitted, exact) = lend_across_a_loss(&server, &clock, PLAIN, how).await;
        assert!(admitted > LIMIT, "{name}: the loss lets more pass");
        assert_eq!(exact, LIMIT, "{name}: of {admitted}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_leases_nothing_in_a_window_with_a_loss() {
    let (server, clock) = (Server::start(&[]).await, noon());
    for (name, how) in LOSSES {
        let lent = lend_across_a_loss(&server, &clock, FENCE, how).await;
        assert_eq!(lent, (LIMIT, LIMIT), "{name}");
    }
}

/// A settlement writes the state that was lost, so that a decision finds one.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_written_by_a_settlement_after_an_eviction_is_bounded() {
    let server = Server::start(&[]).await;
    let (clock, policy) = (noon(), policy("settled"));
    let limiter = vouched(server.url(), &clock, PLAIN, &policy).await;
    let receipt = limiter.check(Call::by("alice").cost(2)).await.unwrap().receipt.unwrap();
    assert_eq!(take(&limiter, "alice").await, (LIMIT - 2, LIMIT - 2));
    lose(&server, LOSSES[3].1).await;
    limiter.settle(receipt, 3).await.unwrap();
    let (admitted, exact) = take(&limiter, "alice").await;
    assert_eq!((admitted, exact), (LIMIT - 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_admits_nothing_in_a_window_with_a_loss() {
    let (server, clock) = (Server::start(&[]).await, noon());
    for (name, how) in LOSSES {
        let policy = policy("fenced");
        let here = vouched(server.url(), &clock, FENCE, &policy).await;
        let there = limiter(server.url(), &clock, FENCE, &policy).await;
        assert_eq!(take(&here, "alice").await, (LIMIT, LIMIT), "{name}");
        lose(&server, how).await;
        let newcomer = limiter(server.url(), &clock, FENCE, &policy).await;
        for limiter in [&newcomer, &here, &there] {
            let answer = limiter.check("alice").await.unwrap();
            let fenced =
                matches!(&answer.outage, Some(StoreError::Unavailable(why)) if why.contains("fenced until"));
            assert!(fenced && !answer.decision.allowed, "{name}: {answer:?}");
        }
        clock.advance(2 * DAY);
        assert_eq!(take(&there, "alice").await, (LIMIT, LIMIT), "{name}: the next is whole");
    }
}

/// By the server's own clock, on a server that was never promoted.
#[tokio::test(flavor = "multi_thread")]
async fn a_flush_of_a_server_that_was_never_promoted_does_not_satisfy_a_fence() {
    let server = Server::start(&[]).await;
    tokio::time::sleep(Duration::from_millis(3_200)).await;
    let limit = || Limit::fixed_window(LIMIT, Duration::from_secs(3_600)).unwrap();
    let store = async || {
        let fence = Failover::Fence { isolation: Duration::ZERO };
        RedisStore::builder(server.url())
            .failover(fence)
            .deadline(Duration::from_secs(5))
            .connect()
            .await
            .unwrap()
    };
    let policy = policy("uptime");
    let limiter = Limiter::new(store().await, &policy, limit()).unwrap();
    // Three seconds vouch for a bucket that is full again after one.
    let bucket = Limit::gcra(throttlekit::Rate::per_second(1)).unwrap();
    let bucket = Limiter::new(store().await, &policy, bucket).unwrap();
    assert!(
        bucket.check("alice").await.unwrap().decision.allowed,
        "the uptime of a healthy server is believed"
    );
    server.ask::<()>("FLUSHALL").await;
    assert!(!bucket.check("alice").await.unwrap().decision.allowed, "it would be full, and is not believed");
    server.ask::<()>("CONFIG RESETSTAT").await;
    server.ask::<()>("FLUSHALL").await;
    server.ask::<()>("CONFIG RESETSTAT").await;
    let newcomer = Limiter::new(store().await, &policy, limit()).unwrap();
    for limiter in [&newcomer, &limiter] {
        assert!(
            !limiter.check("bob").await.unwrap().decision.allowed,
            "statistics that were reset hide nothing"
        );
    }
    // The window after the last flush is whole, and another flush returns none of it to nodes that lease.
    let second = Limit::fixed_window(LIMIT, Duration::from_secs(1)).unwrap();
    let (node, mut windows) = (leased(store().await, &policy, second), BTreeMap::<_, u64>::new());
    let (mut flushes, begun) = (0, rig::now());
    while flushes < 3 {
        assert!(rig::now().since(begun) < RECOVERY_MAX, "no window is whole: {windows:?}");
        for _ in 0..2 * LIMIT {
            let decision = node.check(Call::by("carol")).await.unwrap().decision;
            *windows.entry(decision.reset_at).or_default() += u64::from(decision.allowed);
        }
        if windows.values().any(|admitted| *admitted >= LIMIT) {
            server.ask::<()>("FLUSHALL").await;
            flushes += 1;
        }
    }
    assert!(windows.values().all(|admitted| *admitted <= LIMIT), "{windows:?}");
}

/// A server that has been healthy for longer than a window is vouched for from the first response on.
#[tokio::test(flavor = "multi_thread")]
async fn every_response_of_a_healthy_server_is_exact_from_the_first_on() {
    let server = Server::start(&[]).await;
    tokio::time::sleep(Duration::from_millis(3_200)).await;
    let store = RedisStore::builder(server.url()).deadline(Duration::from_secs(5)).connect().await.unwrap();
    let limit = Limit::fixed_window(1_000, Duration::from_secs(1)).unwrap();
    let limiter = Limiter::new(store, &policy("healthy"), limit).unwrap();
    for n in 0..200 {
        let answer = limiter.check(format!("key{}", n % 50).as_str()).await.unwrap();
        assert_eq!(answer.guarantee, Guarantee::Exact, "{n}");
    }
    let young = Limiter::new(limiter.store().clone(), &policy("young"), day()).unwrap();
    assert_eq!(young.check("alice").await.unwrap().guarantee, UNKNOWN, "it was not up for a day");
}

/// Each slot has its own record beside its keys: a flushed node is detected, and no call needs two slots.
#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_a_flushed_node_is_detected() {
    let cluster = Cluster::start(&[]).await;
    let (clock, policy) = (noon(), policy("cluster"));
    let builder = RedisStore::cluster(cluster.urls()).clock(clock.clone()).deadline(Duration::from_secs(5));
    let limiter = Limiter::new(builder.connect().await.unwrap(), &policy, day()).unwrap();
    let keys: Vec<String> = (0..3).map(|node| cluster.key_on(node, &policy)).collect();
    for key in &keys {
        assert!(limiter.check(key.as_str()).await.unwrap().decision.allowed);
    }
    clock.advance(2 * DAY);
    for key in &keys {
        assert_eq!(take(&limiter, key).await.0, LIMIT);
    }
    assert_eq!(limiter.check(keys[0].as_str()).await.unwrap().guarantee, Guarantee::Exact);
    cluster.nodes[1].ask::<()>("FLUSHALL").await;
    assert_eq!(take(&limiter, &keys[1]).await, (LIMIT, 0));
    clock.advance(DAY);
    assert_eq!(limiter.check(keys[1].as_str()).await.unwrap().guarantee, Guarantee::Exact);
}

/// Without INFO nothing is known about the server, and the label reflects that.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_run_info_no_response_is_exact() {
    let server = Server::start(&[]).await;
    server.ask::<()>("ACL SETUSER tk on >pw ~* &* +@all -info").await;
    let clock = noon();
    let limiter =
        limiter(format!("redis://tk:pw@127.0.0.1:{}", server.port), &clock, PLAIN, &policy("blind")).await;
    assert_eq!(limiter.check("alice").await.unwrap().guarantee, UNKNOWN);
    clock.advance(10 * DAY);
    assert_eq!(limiter.check("alice").await.unwrap().guarantee, UNKNOWN);
    let warnings = limiter.store().warnings();
    assert!(warnings.iter().any(|warning| warning.what.contains("bounded")), "{warnings:?}");
}
