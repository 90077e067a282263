//! A smoke test of each deployment mode: single, TLS, Sentinel, Cluster and Valkey give the same responses.

use std::time::Duration;

use crate::common::{self, cluster, env, on_each, sentinel, single, valkey};
use throttlekit::{Call, Limit, Rate, SharedLimiter};
use throttlekit_redis::{RedisStore, RedisStoreBuilder};

async fn answers_like_the_others(builder: RedisStoreBuilder) {
    let store = builder.connect().await.unwrap();
    let day = Duration::from_secs(86_400);
    let limiter = SharedLimiter::builder(store, &common::policy("smoke"), Rate::per_minute(7).burst(5))
        .limit_by(1, "window", Limit::fixed_window(5, day).unwrap())
        .limit_by(2, "sliding", Limit::sliding_window(5, day).unwrap())
        .limit_by(3, "log", Limit::sliding_log(5, day).unwrap())
        .route_by(0)
        .build()
        .unwrap();
    let ask = |cost| Call::by("{a}").and(&["b}{", "", "a:b"]).cost(cost);
    for left in [3, 1] {
        let answer = limiter.check(ask(2)).await.unwrap();
        assert_eq!((answer.allowed, answer.remaining), (true, left), "{answer:?}");
    }
    let denied = limiter.check(ask(2)).await.unwrap();
    assert!(!denied.allowed, "{denied:?}");
    let many = limiter.check_many([ask(1), ask(1)]).await;
    let mut many: Vec<_> = many.into_iter().map(Result::unwrap).collect();
    assert_eq!(many.iter().map(|a| a.allowed).collect::<Vec<_>>(), [true, false]);
    limiter.settle(many[0].receipt.take().unwrap(), 0).await.unwrap();
    let left = limiter.peek_each(ask(1)).await.unwrap();
    assert_eq!(left.iter().map(|d| d.remaining).collect::<Vec<_>>(), [1; 4], "{left:?}");
    limiter.reset(ask(1)).await.unwrap();
    assert_eq!(limiter.check(ask(5)).await.unwrap().remaining, 0);
}

on_each! { answers_like_the_others:
    single => on_one_server,
    valkey => on_valkey,
    cluster => on_a_cluster,
    sentinel => behind_sentinels,
}

#[cfg(feature = "tls-ring")]
#[tokio::test]
async fn over_tls() {
    let ca = std::fs::read(env("THROTTLEKIT_REDIS_TLS_CA")).unwrap();
    let url = env("THROTTLEKIT_REDIS_TLS");
    answers_like_the_others(RedisStore::builder(url.clone()).ca(ca)).await;
    let stranger = RedisStore::builder(url).connect().await.unwrap();
    assert!(stranger.line_stats().open, "a certificate that nobody vouches for is not trusted");
}
