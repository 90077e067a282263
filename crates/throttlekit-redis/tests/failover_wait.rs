//! `failover`, waiting: nothing is spent that the replicas have not received.

use std::time::Duration;

use crate::common::policy;
use crate::rig::{DAY, Limiter, Pair, figure, is_own, now, until};
use throttlekit::store::StoreError;
use throttlekit::{Call, Guarantee, Limit};
use throttlekit_redis::{Failover, RedisStore};

const LIMIT: u64 = 100;
const WITHIN: Duration = Duration::from_millis(200);
const DEADLINE: Duration = Duration::from_secs(2);

async fn waiting(pair: &Pair) -> Limiter {
    let failover = Failover::Wait { replicas: 1, within: WITHIN };
    let builder = RedisStore::builder(pair.way.url()).deadline(DEADLINE).failover(failover);
    let store = builder.connect().await.unwrap();
    Limiter::new(store, &policy("wait"), Limit::fixed_window(LIMIT, DAY).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_without_a_replica_is_an_outage_and_stays_charged() {
    let mut pair = Pair::start().await;
    let limiter = waiting(&pair).await;
    for _ in 0..30 {
        assert!(is_own(limiter.check("alice").await.unwrap().guarantee));
    }
    let cut_off = async {
        for _ in 0..2 {
            let answer = limiter.check("alice").await.unwrap();
            assert_eq!((answer.decision.allowed, answer.guarantee), (false, Guarantee::Closed));
            let Some(StoreError::Unavailable(why)) = answer.outage else { panic!("{:?}", answer.outage) };
            assert!(why.contains("0 of 1 replicas"), "{why}");
        }
        assert_eq!(limiter.peek(b"alice").await.unwrap().remaining, LIMIT - 32, "the charges stand");
        let denied = limiter.check(Call::by("alice").cost(LIMIT)).await.unwrap();
        assert!(!denied.decision.allowed && is_own(denied.guarantee), "a denial writes nothing");
    };
    pair.lose(cut_off).await;

    // The new primary has no replica, so nothing passes there until it has.
    until("an answer from it", DEADLINE * 2, async || {
        let answer = limiter.check(Call::by("bob")).await.unwrap();
        assert!(!answer.decision.allowed, "{answer:?}");
        answer.outage.is_some_and(|outage| outage.to_string().contains("0 of 1"))
    })
    .await;
    std::mem::swap(&mut pair.primary, &mut pair.replica);
    pair.replica.up().await;
    pair.follow().await;
    let mut all = 30;
    for _ in 0..2 * LIMIT {
        let answer = limiter.check("alice").await.unwrap();
        assert!(answer.outage.is_none(), "{answer:?}");
        all += u64::from(answer.decision.allowed);
    }
    assert_eq!(all, LIMIT, "what was not spent was lost, and all that was spent is remembered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peek_does_not_queue_behind_a_charge_that_waits() {
    let pair = Pair::start().await;
    let limiter = waiting(&pair).await;
    limiter.check("alice").await.unwrap();
    pair.replica.signal("STOP");
    let begun = now();
    let charges = futures_util::future::join_all((0..8).map(|_| limiter.check("alice")));
    let look = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let begun = now();
        limiter.peek("alice").await.unwrap();
        now().since(begun)
    };
    let (answers, looked) = tokio::join!(charges, look);
    pair.replica.signal("CONT");
    assert!(answers.into_iter().all(|answer| !answer.unwrap().decision.allowed));
    figure("failover-wait", "look_us", looked.as_micros());
    assert!(now().since(begun) >= WITHIN && looked < WITHIN / 2, "{looked:?}");
}
