//! Concurrent decisions over Redis, which are sent together.

use std::time::Duration;

use futures_util::future::join_all;
use throttlekit::Guarantee;
use throttlekit_redis::RedisStore;
use throttlekit_server::internals::engine::{Answered, Backend, Engine, EngineOptions, PolicyCall};
use throttlekit_server::policy;

use crate::own_redis::OwnRedis;

const LIMIT: usize = 100;
const POLICIES: &str = "\
version: 1
policies:
  one: {rate: {algorithm: fixed_window, limit: 100, per: 1d}}
  other: {rate: {limit: 100, per: 1d, burst: 100}}
";

async fn engine(store: RedisStore) -> Engine {
    let (file, _) = policy::load(POLICIES).unwrap_or_else(|errors| panic!("{errors:?}"));
    Engine::start(EngineOptions::over(Backend::redis(store)), file).unwrap()
}

fn ask<'a>(policy: &'a str, key: &'a [u8]) -> PolicyCall<'a> {
    PolicyCall { policy, key, others: &[], cost: 1 }
}

#[tokio::test]
async fn decisions_at_once_are_exact_each_and_few_calls() {
    let redis = OwnRedis::start().await;
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let engine = engine(store.clone()).await;
    let before = store.line_stats().calls;
    let each = (0..3 * LIMIT).flat_map(|n| {
        let key: &[u8] = if n % 2 == 0 { b"alice" } else { b"bob" };
        ["one", "other"].map(|policy| engine.check(ask(policy, key)))
    });
    let answers = join_all(each).await;
    let allowed = answers.iter().filter(|answer| answer.as_ref().unwrap().decision.allowed).count();
    assert_eq!(allowed, 4 * LIMIT, "two keys of two policies");
    // Bounded: the server is younger than the window, so what it counted before is not known.
    let by_store = |answer: &Answered| matches!(answer.guarantee, Guarantee::Exact | Guarantee::Bounded(_));
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(by_store)));
    let calls = store.line_stats().calls - before;
    assert!(calls <= answers.len() as u64 / 10, "{calls} calls for {} decisions", answers.len());
}

#[tokio::test]
async fn who_leaves_while_waiting_holds_up_nobody() {
    let redis = OwnRedis::start().await;
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let engine = engine(store).await;
    for _ in 0..20 {
        // Dropped after one poll: some while they wait, some in flight.
        let left: Vec<_> = (0..50).map(|_| Box::pin(engine.check(ask("one", b"left")))).collect();
        let polled = join_all(left.into_iter().map(|check| tokio::time::timeout(Duration::ZERO, check)));
        drop(polled.await);
        let stays = tokio::time::timeout(Duration::from_secs(5), engine.check(ask("other", b"stays")));
        assert!(stays.await.expect("it is decided").is_ok());
    }
}

#[tokio::test]
async fn a_store_that_is_gone_fails_each_decision_in_time() {
    let mut redis = OwnRedis::start().await;
    let store =
        RedisStore::builder(redis.url()).deadline(Duration::from_millis(200)).connect().await.unwrap();
    let engine = engine(store).await;
    assert!(engine.check(ask("one", b"alice")).await.unwrap().decision.allowed);
    redis.stop();
    let all = join_all((0..200).map(|_| engine.check(ask("one", b"alice"))));
    let answers = tokio::time::timeout(Duration::from_secs(5), all).await.expect("none hangs");
    let closed = |answer: &_| matches!(answer, Ok(answer) if is_closed(answer));
    assert!(answers.iter().all(closed), "{answers:?}");
}

fn is_closed(answer: &Answered) -> bool {
    answer.guarantee == Guarantee::Closed && !answer.decision.allowed
}
