//! The shortest way through each seat: single, TLS, Sentinel, Cluster and Valkey answer alike.

use std::time::Duration;

use crate::common::{self, cluster, env, on_each, sentinel, single, valkey};
use throttlekit::{Call, Limit, Rate, SharedLimiter};
use throttlekit_redis::{RedisStore, RedisStoreBuilder};

async fn answers_like_the_others(builder: RedisStoreBuilder) {
    let store = builder.connect().await.unwrap();
    let limits = [
        ("gcra", Limit::gcra(Rate::per_minute(7).burst(5)).unwrap()),
        ("window", Limit::fixed_window(5, Duration::from_secs(86_400)).unwrap()),
        ("sliding", Limit::sliding_window(5, Duration::from_secs(86_400)).unwrap()),
        ("log", Limit::sliding_log(5, Duration::from_secs(86_400)).unwrap()),
    ];
    let limiter = SharedLimiter::all(store, &common::policy("smoke"), limits).unwrap().home(0);
    let ask = |cost| ["{a}", "b}{", "", "a:b"].map(|key| Call::by(key).cost(cost));
    for left in [3, 1] {
        let answer = limiter.check_all(ask(2)).await.unwrap();
        assert_eq!((answer.decision.allowed, answer.decision.remaining), (true, left), "{answer:?}");
    }
    let denied = limiter.check_all(ask(2)).await.unwrap();
    assert!(!denied.decision.allowed, "{denied:?}");
    let many = limiter.check_many(&[ask(1), ask(1)]).await;
    let mut many: Vec<_> = many.into_iter().map(Result::unwrap).collect();
    assert_eq!(many.iter().map(|a| a.decision.allowed).collect::<Vec<_>>(), [true, false]);
    limiter.settle(many[0].receipt.take().unwrap(), [0; 4]).await.unwrap();
    let keys: [&[u8]; 4] = [b"{a}", b"b}{", b"", b"a:b"];
    let left = limiter.peek_each(keys).await.unwrap();
    assert_eq!(left.map(|d| d.remaining), [1; 4], "{left:?}");
    limiter.reset(keys).await.unwrap();
    assert_eq!(limiter.check_all(ask(5)).await.unwrap().decision.remaining, 0);
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
