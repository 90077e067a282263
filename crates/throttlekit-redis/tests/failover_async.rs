//! `failover`, asynchronous: admitted ≤ L + Λ, where the store itself counts Λ.

use std::time::Duration;

use crate::common::policy;
use crate::rig::{DAY, Limiter, Pair, figure, until};
use throttlekit::{Call, Guarantee, Limit};
use throttlekit_redis::{Failover, RedisStore};

const LIMIT: u64 = 100;
/// Replicas report their offset once a second.
const HEARD_MAX: Duration = Duration::from_secs(5);

async fn sampled(pair: &Pair) -> Limiter {
    let failover = Failover::Async { sample: Some(Duration::from_millis(10)) };
    let store = RedisStore::builder(pair.way.url()).failover(failover).connect().await.unwrap();
    Limiter::new(store, &policy("async"), Limit::fixed_window(LIMIT, DAY).unwrap()).unwrap()
}

/// Requests one unit at a time, and counts the admitted ones.
async fn take(limiter: &Limiter, asks: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..asks {
        admitted += u64::from(limiter.check("alice").await.unwrap().decision.allowed);
    }
    admitted
}

#[tokio::test(flavor = "multi_thread")]
async fn replicated_charges_are_safe_and_lost_ones_are_counted_at_failover() {
    let mut pair = Pair::start().await;
    let limiter = sampled(&pair).await;
    assert_eq!(take(&limiter, 30).await, 30);
    assert!(limiter.store().exposure().at_risk <= 30);
    until("the replica to say so", HEARD_MAX, async || limiter.store().exposure().at_risk == 0).await;

    assert_eq!(pair.lose(take(&limiter, 20)).await, 20);
    let before = limiter.store().exposure();
    assert_eq!((before.at_risk, before.lost_max, before.changes), (20, 0, 0), "nothing has been seen yet");

    until("good answers", HEARD_MAX, async || limiter.check(Call::by("bob")).await.unwrap().outage.is_none())
        .await;
    let after = limiter.store().exposure();
    assert!((20..=25).contains(&after.lost_max) && after.changes == 1, "{after:?}");
    let answer = limiter.check("alice").await.unwrap();
    assert_eq!(answer.guarantee, Guarantee::Bounded(after.lost_max), "{answer:?}");

    let all = 50 + 1 + take(&limiter, LIMIT).await;
    figure("failover-async", "admitted", format_args!("{all} of {LIMIT} + {} lost", after.lost_max));
    assert!(all <= LIMIT + after.lost_max, "{all}");
    assert_eq!(all, LIMIT + 20, "the bound is reached: what was lost is admitted again");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_replica_every_charge_is_at_risk_and_lost_in_a_restart() {
    let mut pair = Pair::start().await;
    pair.replica.kill();
    let limiter = sampled(&pair).await;
    assert_eq!(take(&limiter, 30).await, 30);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(limiter.store().exposure().at_risk, 30);
    pair.primary.kill();
    pair.primary.up().await;
    until("good answers", HEARD_MAX, async || limiter.check(Call::by("bob")).await.unwrap().outage.is_none())
        .await;
    let lost = limiter.store().exposure().lost_max;
    assert!((30..=35).contains(&lost), "what was unheard counts too: {lost}");
    assert_eq!(30 + take(&limiter, 2 * LIMIT).await, LIMIT + 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_samples_a_response_after_a_failover_has_an_unknown_bound() {
    let mut pair = Pair::start().await;
    let store = RedisStore::builder(pair.way.url()).connect().await.unwrap();
    let limiter = Limiter::new(store, &policy("plain"), Limit::fixed_window(LIMIT, DAY).unwrap()).unwrap();
    assert_eq!(pair.lose(take(&limiter, 20)).await, 20);
    until("good answers", HEARD_MAX, async || limiter.check(Call::by("bob")).await.unwrap().outage.is_none())
        .await;
    assert_eq!(20 + take(&limiter, 2 * LIMIT).await, LIMIT + 20);
    assert_eq!(limiter.check("alice").await.unwrap().guarantee, Guarantee::Bounded(u64::MAX));
    assert_eq!(limiter.store().exposure(), Default::default());
}
