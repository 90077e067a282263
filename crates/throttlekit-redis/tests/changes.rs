//! Changes of the environment of a store: half a cluster, a password, incomplete TLS, a limit's numbers, a
//! foreign value.

use std::time::Duration;

use crate::common::{self, policy};
use crate::rig::{self, DAY, Server};
use throttlekit::clock::{Clock, ManualClock};
use throttlekit::rate::Timestamp;
use throttlekit::store::{Store, StoreError};
use throttlekit::{Call, Guarantee, Limit, SharedLimiter};
use throttlekit_redis::{RedisStore, RedisStoreBuilder};

const HOUR: Duration = Duration::from_secs(3_600);

fn patient(builder: RedisStoreBuilder) -> RedisStoreBuilder {
    builder.deadline(Duration::from_secs(5))
}

async fn refused(builder: RedisStoreBuilder) -> bool {
    matches!(builder.connect().await, Err(StoreError::Misconfigured(_)))
}

/// Requests of one pipeline whose slots are not served use the fallback, the others work as usual and are
/// charged once.
#[tokio::test]
async fn half_a_cluster_serves_its_half() {
    let server = Server::start(&["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"]).await;
    server.ask::<()>("CLUSTER ADDSLOTSRANGE 0 8191").await;
    rig::until("the half is there", DAY, async || {
        server.ask::<String>("CLUSTER INFO").await.contains("cluster_state:ok")
    })
    .await;
    let store = patient(RedisStore::cluster([server.url()])).connect().await.unwrap();
    let limiter =
        SharedLimiter::new(store, &policy("half"), Limit::fixed_window(5, 30 * DAY).unwrap()).unwrap();
    let keys: Vec<String> = (0..40).map(|n| format!("key{n}")).collect();
    let answers = limiter.check_many(&keys).await;
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    for (key, answer) in keys.iter().zip(&answers) {
        match answer.guarantee {
            Guarantee::Exact | Guarantee::Bounded(_) => {
                assert!(answer.decision.allowed);
                assert_eq!(limiter.peek(key).await.unwrap().remaining, 4, "charged once");
            }
            Guarantee::Closed => assert!(!answer.decision.allowed && answer.receipt.is_none()),
            other => panic!("{other}"),
        }
    }
    let exact = answers.iter().filter(|answer| answer.guarantee != Guarantee::Closed).count();
    assert!((5..=35).contains(&exact), "{exact} of 40");
}

#[tokio::test]
async fn a_password_that_is_missing_is_no_outage() {
    let server = Server::start(&[]).await;
    server.ask::<()>("CONFIG SET requirepass secret").await;
    assert!(refused(RedisStore::builder(server.url())).await);
    let url = format!("redis://:secret@127.0.0.1:{}", server.port);
    assert!(RedisStore::builder(url).connect().await.is_ok());
}

#[cfg(feature = "tls-ring")]
#[tokio::test]
async fn incomplete_tls_settings_are_errors() {
    let ca = || std::fs::read(common::env("THROTTLEKIT_REDIS_TLS_CA")).unwrap();
    assert!(refused(RedisStore::builder("redis://127.0.0.1:1").ca(ca())).await);
    assert!(refused(RedisStore::cluster(["redis://127.0.0.1:1", "rediss://127.0.0.1:2"])).await);
    assert!(refused(RedisStore::sentinel(["rediss://127.0.0.1:1"], "mymaster")).await);
    assert!(refused(RedisStore::builder("redis://127.0.0.1:1").servers("redis://a")).await);
}

/// An expired window has no meaning on the grid of the limit it became.
#[tokio::test]
async fn a_longer_window_begins_where_the_shorter_one_has_ended() {
    let server = Server::start(&[]).await;
    let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000 - 1_800_000_000_000 % 86_400_000));
    let store = patient(RedisStore::builder(server.url())).connect().await.unwrap().at(clock.clone());
    let limit = |length| Limit::fixed_window(100, length).unwrap();
    let (hourly, daily) = (limit(HOUR), limit(DAY));
    let limiter = |limit| SharedLimiter::new(store.clone(), "grows", limit).unwrap();
    assert!(limiter(hourly).check(Call::by("alice").cost(100)).await.unwrap().decision.allowed);
    clock.set(clock.now() + HOUR);
    let grown = limiter(daily);
    assert_eq!(grown.peek(b"alice").await.unwrap().remaining, 100);
    let answer = grown.check("alice").await.unwrap();
    assert_eq!((answer.decision.allowed, answer.decision.remaining), (true, 99));
    // Within a window that has not ended, use still counts.
    clock.set(clock.now() + HOUR);
    assert_eq!(limiter(hourly).check("alice").await.unwrap().decision.remaining, 98);
}

/// A settlement over several limits is all or none, and a foreign value only affects its own request.
#[tokio::test]
async fn a_foreign_value_fails_a_whole_settlement_and_part_of_a_pipeline() {
    let server = Server::start(&[]).await;
    let store = patient(RedisStore::builder(server.url())).connect().await.unwrap();
    let day = || Limit::fixed_window(100, 30 * DAY).unwrap();
    let limiter = SharedLimiter::builder(store.clone(), "whole", day()).limit("b", day()).one_slot();
    let limiter = limiter.build().unwrap();
    let receipt = limiter.check(("x", 50)).await.unwrap().receipt.unwrap();
    let keys: Vec<String> = server.ask("KEYS *}w:b/x").await;
    let kept: String = server.ask(&format!("GETSET {} foreign", keys[0])).await;
    assert!(matches!(limiter.settle(receipt, 10).await, Err(StoreError::BadState(_))));
    server.ask::<()>(&format!("DEL {}", keys[0])).await;
    let mut connection = server.connection().await.unwrap();
    redis::cmd("SET").arg(&keys[0]).arg(kept).exec_async(&mut connection).await.unwrap();
    let left = limiter.peek_each("x").await.unwrap();
    assert!(left.iter().all(|left| left.remaining == 50), "neither was handed back: {left:?}");

    let single = SharedLimiter::new(store, "part", day()).unwrap();
    single.check("bad").await.unwrap();
    let keys: Vec<String> = server.ask("KEYS *part*").await;
    server.ask::<()>(&format!("SET {} foreign", keys[0])).await;
    let answers = single.check_many(["good", "bad", "good"]).await;
    assert!(matches!(answers[1], Err(StoreError::BadState(_))), "{answers:?}");
    assert_eq!(answers[2].as_ref().unwrap().decision.remaining, 98);
}

/// However often requests are made and refunded, a log holds at most its limit plus one.
#[tokio::test]
async fn a_log_does_not_grow_by_refunds() {
    let server = Server::start(&[]).await;
    let store = patient(RedisStore::builder(server.url())).connect().await.unwrap();
    let limiter = SharedLimiter::new(store, "log", Limit::sliding_log(2, DAY).unwrap()).unwrap();
    for _ in 0..50 {
        let answers = limiter.check_many(["x", "x"]).await;
        for answer in answers {
            limiter.settle(answer.unwrap().receipt.unwrap(), 0).await.unwrap();
        }
    }
    let keys: Vec<String> = server.ask("KEYS *}l:*").await;
    let entries: u64 = server.ask(&format!("LLEN {}", keys[0])).await;
    assert!(entries <= 4, "{entries} entries for a limit of two");
    let _ = limiter.store().guarantee();
}
