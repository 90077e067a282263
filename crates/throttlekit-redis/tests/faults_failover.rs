//! Primaries that die, freeze or are demoted: responses are labeled meanwhile, and exact ones resume at once.

use std::sync::Arc;
use std::time::Duration;

use crate::common::policy;
use crate::rig::{
    Cluster, DAY, Heard, Limiter, Load, RECOVERY_MAX, Sentinels, Server, admitted, ask, exact_after, figure,
    is_own, labelled, now, recovers, until, window_key,
};
use throttlekit::rate::Timestamp;
use throttlekit::{Call, Guarantee, Limit};
use throttlekit_redis::RedisStore;
use tokio::time::sleep;

const LIMIT: u64 = 20_000;
const PROMOTION_MAX: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(2);

async fn over_cluster(cluster: &Cluster) -> RedisStore {
    RedisStore::cluster(cluster.urls()).connect().await.unwrap()
}

fn daily(store: RedisStore, policy: &str) -> Arc<Limiter> {
    Arc::new(Limiter::new(store, policy, Limit::fixed_window(LIMIT, DAY).unwrap()).unwrap())
}

fn of(heard: &[Heard], key: &str) -> Vec<Heard> {
    heard.iter().filter(|answer| &*answer.key == key).cloned().collect()
}

/// Returns the use of a window on a replica, read by hand.
async fn used_on(replica: &Server, key: &str) -> u64 {
    let mut connection = replica.connection().await.unwrap();
    ask::<()>(&mut connection, "READONLY").await.unwrap();
    let value: String = ask(&mut connection, &format!("GET {key}")).await.unwrap();
    value.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Takes what is left, to the last unit.
async fn take_the_rest(limiter: &Limiter, key: &str) -> u64 {
    let mut taken = 0;
    for cost in [1_000, 100, 10, 1] {
        loop {
            let answer = limiter.check(Call::by(key).cost(cost)).await.unwrap();
            assert!(is_own(answer.guarantee), "{answer:?}");
            if !answer.decision.allowed {
                break;
            }
            taken += cost;
        }
    }
    taken
}

/// Kills one primary under load, after its replica was disconnected for a moment: the charges of that moment
/// are lost. Returns the time from the replica's first write to ours.
async fn kill_under_load(cluster: &mut Cluster, primary: usize) -> Duration {
    let policy = policy("kill");
    let limiter = daily(over_cluster(cluster).await, &policy);
    let hot = cluster.key_on(primary, &policy);
    let others = [1, 2].map(|n| cluster.key_on((primary + n) % 3, &policy));
    let load = Load::start(&limiter, &[&hot, &others[0], &others[1]], 3, PAUSE);
    sleep(Duration::from_millis(300)).await;
    cluster.replica_of(primary).signal("STOP");
    assert_eq!(cluster.nodes[primary].ask::<u64>("CLIENT KILL TYPE replica").await, 1);
    sleep(Duration::from_millis(100)).await;
    cluster.nodes[primary].kill();
    let killed = now();
    cluster.replica_of(primary).signal("CONT");
    sleep(Duration::from_millis(50)).await;
    let survived = used_on(cluster.replica_of(primary), &window_key(&policy, &hot)).await;
    let promoted =
        cluster.replica_of(primary).takes_writes(&format!("{{{policy}/{hot}}}observer"), PROMOTION_MAX).await;
    sleep(RECOVERY_MAX * 2).await;
    let heard = load.finish().await;

    let (tally, line) = (limiter.stats().answers, limiter.store().line_stats());
    labelled(&heard);
    assert!(tally.closed > 0 && line.failed > 0 && line.opened > 0, "{tally:?} {line:?}");
    for other in &others {
        let silent: Vec<_> =
            of(&heard, other).into_iter().filter(|answer| !answer.guarantee.is_some_and(is_own)).collect();
        assert!(silent.is_empty(), "other slots are not touched: {silent:?}");
    }
    let heard = of(&heard, &hot);
    let before = admitted(&heard.iter().filter(|answer| answer.at < promoted).cloned().collect::<Vec<_>>());
    let lost = before.saturating_sub(survived);
    let all = admitted(&heard) + take_the_rest(&limiter, &hot).await;
    assert!(lost > 0 && all <= LIMIT + lost, "{all} admitted, {lost} lost");
    assert!(all > LIMIT, "the bound is reached: what is forgotten is admitted again");
    figure("kill-primary", "promotion_ms", promoted.since(killed).as_millis());
    figure("kill-primary", "admitted", format_args!("{all} of {LIMIT} + {lost} lost"));
    exact_after(&heard, killed + Duration::from_millis(50)).expect("it recovers").since(promoted)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_primary_is_replaced_without_touching_other_slots() {
    let mut cluster = Cluster::start(&["--cluster-require-full-coverage", "no"]).await;
    recovers("kill-primary", async |attempt| kill_under_load(&mut cluster, attempt).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_full_coverage_required_a_killed_primary_takes_the_other_slots_with_it_for_a_while() {
    let mut cluster = Cluster::start(&[]).await;
    recovers("kill-primary-full-coverage", async |attempt| {
        let policy = policy("coverage");
        let limiter = daily(over_cluster(&cluster).await, &policy);
        let [hot, other] = [0, 1].map(|n| cluster.key_on((attempt + n) % 3, &policy));
        let load = Load::start(&limiter, &[&hot, &other], 3, PAUSE);
        sleep(Duration::from_millis(200)).await;
        cluster.nodes[attempt].kill();
        let key = |key: &str| format!("{{{policy}/{key}}}observer");
        let promoted = cluster.replica_of(attempt).takes_writes(&key(&hot), PROMOTION_MAX).await;
        let healed = cluster.nodes[(attempt + 1) % 3].takes_writes(&key(&other), PROMOTION_MAX).await;
        sleep(RECOVERY_MAX * 2).await;
        let heard = load.finish().await;
        labelled(&heard);
        let refused: Vec<_> =
            of(&heard, &other).into_iter().filter(|answer| answer.error.is_some()).collect();
        assert!(!refused.is_empty(), "the default takes all slots down");
        figure(
            "kill-primary-full-coverage",
            "other_slots_refused_ms",
            refused[refused.len() - 1].at.since(refused[0].at).as_millis(),
        );
        let last = refused[refused.len() - 1].at;
        let recovered =
            |key: &str, since: Timestamp| exact_after(&of(&heard, key), last).map(|at| at.since(since));
        recovered(&hot, promoted).max(recovered(&other, healed)).expect("both recover")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_primary_is_not_waited_for_once_its_replica_is_promoted() {
    let cluster = Cluster::start(&["--cluster-require-full-coverage", "no"]).await;
    recovers("freeze-primary", async |attempt| {
        let policy = policy("freeze");
        let limiter = daily(over_cluster(&cluster).await, &policy);
        let hot = cluster.key_on(attempt, &policy);
        let load = Load::start(&limiter, &[&hot], 3, PAUSE);
        sleep(Duration::from_millis(200)).await;
        cluster.nodes[attempt].signal("STOP");
        let frozen = now();
        let observer = format!("{{{policy}/{hot}}}observer");
        let promoted = cluster.replica_of(attempt).takes_writes(&observer, PROMOTION_MAX).await;
        sleep(RECOVERY_MAX * 2).await;
        let heard = load.finish().await;
        labelled(&heard);
        let line = limiter.store().line_stats();
        assert!(line.timed_out > 0 && line.opened > 0, "{line:?}");
        let looked = limiter.store().route_stats().looked;
        figure("freeze-primary", "looks", looked);
        assert!(looked < 400, "too many lookups: {looked}");
        exact_after(&heard, frozen + Duration::from_millis(50)).expect("it recovers").since(promoted)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demoted_server_decides_nothing_until_it_is_a_primary_again() {
    let server = Server::start(&[]).await;
    recovers("demotion", async |_| {
        let store = RedisStore::builder(server.url()).connect().await.unwrap();
        let limiter = daily(store, &policy("demotion"));
        take_the_rest(&limiter, "spent").await;
        let load = Load::start(&limiter, &["alice", "spent"], 3, PAUSE);
        sleep(Duration::from_millis(100)).await;
        server.ask::<()>("REPLICAOF 127.0.0.1 1").await;
        let demoted = now();
        sleep(Duration::from_millis(500)).await;
        server.ask::<()>("REPLICAOF NO ONE").await;
        let restored = now();
        sleep(RECOVERY_MAX * 2).await;
        let heard = load.finish().await;
        labelled(&heard);
        // Calls in flight at the demotion may still arrive.
        let settled = demoted + Duration::from_millis(50);
        let while_replica = exact_after(&heard, settled).expect("it recovers");
        assert!(while_replica >= restored, "a replica has decided, if only by denying");
        let (line, route) = (limiter.store().line_stats(), limiter.store().route_stats());
        assert!(route.demoted > 0 && line.opened > 0 && line.refused_open > 0, "{line:?} {route:?}");
        while_replica.since(restored)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_failover_of_a_cluster_is_followed_by_redirection() {
    let cluster = Cluster::start(&[]).await;
    recovers("cluster-failover", async |attempt| {
        let policy = policy("planned");
        let limiter = daily(over_cluster(&cluster).await, &policy);
        let hot = cluster.key_on(attempt, &policy);
        let load = Load::start(&limiter, &[&hot], 3, PAUSE);
        sleep(Duration::from_millis(200)).await;
        cluster.replica_of(attempt).ask::<()>("CLUSTER FAILOVER").await;
        let observer = format!("{{{policy}/{hot}}}observer");
        let promoted = cluster.replica_of(attempt).takes_writes(&observer, PROMOTION_MAX).await;
        sleep(RECOVERY_MAX * 2).await;
        let heard = load.finish().await;
        labelled(&heard);
        let route = limiter.store().route_stats();
        figure(
            "cluster-failover",
            "answers",
            format_args!(
                "{} answered, {} closed, {} redirected",
                limiter.stats().answers.exact + limiter.stats().answers.bounded,
                limiter.stats().answers.closed,
                route.redirected
            ),
        );
        assert!(route.redirected > 0, "{route:?}");
        exact_after(&heard, promoted).expect("it recovers").since(promoted)
    })
    .await;
}

/// A slot in migration: keys that have left, or are not there yet, are requested at their new node, once each
/// and charged once.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_in_migration_is_followed_key_by_key() {
    let cluster = Cluster::start(&[]).await;
    let policy = policy("moving");
    let limiter = daily(over_cluster(&cluster).await, &policy);
    let key = cluster.key_on(0, &policy);
    let slot = throttlekit_redis::slot_of(&window_key(&policy, &key));
    let (from, to) = (&cluster.nodes[0], &cluster.nodes[1]);
    let (from_id, to_id): (String, String) = (from.ask("CLUSTER MYID").await, to.ask("CLUSTER MYID").await);
    to.ask::<()>(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}")).await;
    from.ask::<()>(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}")).await;

    // The key does not exist yet, so the old node redirects, and it starts on the new one.
    for used in 1..=3 {
        let answer = limiter.check(&key).await.unwrap();
        assert_eq!((is_own(answer.guarantee), answer.decision.remaining), (true, LIMIT - used), "{answer:?}");
    }
    let asked = limiter.store().route_stats().redirected;
    assert_eq!(asked, 3, "each ask is sent on once");

    for node in &cluster.nodes[..3] {
        node.ask::<()>(&format!("CLUSTER SETSLOT {slot} NODE {to_id}")).await;
    }
    for used in 4..=6 {
        let answer = limiter.check(&key).await.unwrap();
        assert_eq!((is_own(answer.guarantee), answer.decision.remaining), (true, LIMIT - used), "{answer:?}");
    }
    let moved = limiter.store().route_stats().redirected - asked;
    figure("resharding", "redirections", format_args!("{asked} while the slot moves, {moved} after"));
    assert!(moved <= 1, "then the map knows: {moved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_are_asked_for_the_new_primary_even_if_they_come_late() {
    let mut sentinels = Sentinels::lay_out().await;
    let store = RedisStore::sentinel(sentinels.urls(), "mymaster").connect().await.unwrap();
    let limiter = daily(store, &policy("sentinel"));
    let unanswered = limiter.check("alice").await.unwrap();
    assert_eq!(unanswered.guarantee, Guarantee::Closed, "no Sentinel is there yet: {unanswered:?}");
    sentinels.start_sentinels().await;
    let load = Load::start(&limiter, &["alice"], 3, PAUSE);
    sleep(Duration::from_millis(300)).await;
    let found = limiter.check("alice").await.unwrap();
    assert!(is_own(found.guarantee), "{found:?}");
    sentinels.primary.kill();
    let killed = now();
    let accepts = sentinels.replica.takes_writes("observer", PROMOTION_MAX).await;
    let named = until("Sentinels to agree", PROMOTION_MAX, async || {
        sentinels.votes(sentinels.replica.port).await >= 2
    })
    .await;
    sleep(RECOVERY_MAX * 2).await;
    let heard = load.finish().await;
    labelled(&heard);
    let recovered = exact_after(&heard, killed + Duration::from_millis(50)).expect("it recovers");
    figure("sentinel-failover", "named_after_promotion_ms", named.since(accepts).as_millis());
    figure("sentinel-failover", "recovery_after_promotion_ms", recovered.since(accepts).as_millis());
    recovers("sentinel-failover", async |_| recovered.since(named)).await;
}
