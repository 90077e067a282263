//! The documented rights are enough, and a missing one is detected when connecting.

use std::time::Duration;

use crate::rig::{DAY, Server};
use throttlekit::store::StoreError;
use throttlekit::{Call, Limit, Rate, SharedLimiter};
use throttlekit_redis::{Failover, RedisStore, RedisStoreBuilder};

/// Returns the line of `docs/operate/redis.md`.
fn documented() -> String {
    let guide = include_str!("../../../docs/operate/redis.md");
    let begin = guide.find("ACL SETUSER").expect("the guide tells the rights");
    let line = guide[begin..].split("```").next().unwrap_or_default();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn limits() -> [(&'static str, Limit); 4] {
    [
        ("gcra", Limit::gcra(Rate::per_minute(7).burst(5)).unwrap()),
        ("window", Limit::fixed_window(5, DAY).unwrap()),
        ("sliding", Limit::sliding_window(5, DAY).unwrap()),
        ("log", Limit::sliding_log(5, DAY).unwrap()),
    ]
}

async fn store(server: &Server) -> Result<RedisStore, StoreError> {
    builder(server).connect().await
}

fn builder(server: &Server) -> RedisStoreBuilder {
    RedisStore::builder(format!("redis://throttlekit:secret@127.0.0.1:{}", server.port))
}

#[tokio::test]
async fn the_documented_rights_are_enough() {
    let server = Server::start(&[]).await;
    server.ask::<()>(&documented()).await;
    let [(_, first), others @ ..] = limits();
    let mut builder = SharedLimiter::builder(store(&server).await.unwrap(), "acl", first);
    for (index, (name, limit)) in others.into_iter().enumerate() {
        builder = builder.limit_by(1 + index, name, limit);
    }
    let limiter = builder.build().unwrap();
    let call = Call::by("a").and(&["b", "c", "d"]).cost(3);
    let answer = limiter.check(call).await.unwrap();
    assert!(answer.allowed && answer.outage.is_none(), "{answer:?}");
    limiter.settle_each(answer.receipt.unwrap(), &[1, 4, 1, 4]).await.unwrap();
    let left = limiter.peek_each(call).await.unwrap();
    assert_eq!(left.iter().map(|left| left.remaining).collect::<Vec<_>>(), [4, 1, 4, 1]);
    limiter.reset(call).await.unwrap();
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_at_the_start() {
    for (but, named) in
        [("-lrange", "LRANGE"), ("-set", "SET"), ("-eval", "eval"), ("resetkeys ~other:*", "keys")]
    {
        let server = Server::start(&[]).await;
        server.ask::<()>(&format!("{} {but}", documented())).await;
        match store(&server).await {
            Err(StoreError::Misconfigured(why)) => assert!(why.contains(named), "{but}: {why}"),
            other => panic!("{but}: {other:?}"),
        }
    }
}

/// A fence needs the id in its scripts, a wait needs `WAIT`, samples need `INFO`: each error names it when
/// connecting.
#[tokio::test]
async fn each_failover_mode_names_the_right_that_it_misses() {
    let fence = Failover::Fence { isolation: Duration::from_secs(1) };
    let wait = Failover::Wait { replicas: 1, within: Duration::from_millis(10) };
    let sampled = Failover::Async { sample: Some(Duration::from_secs(1)) };
    for (failover, but, named) in [
        (fence, "-info", "+info"),
        (fence, "-pttl", "PTTL"),
        (wait, "-wait", "WAIT"),
        (sampled, "-info", "+info"),
    ] {
        let server = Server::start(&[]).await;
        server.ask::<()>(&documented()).await;
        builder(&server).failover(failover).connect().await.unwrap();
        server.ask::<()>(&format!("{} {but}", documented())).await;
        match builder(&server).failover(failover).connect().await {
            Err(StoreError::Misconfigured(why)) => assert!(why.contains(named), "{but}: {why}"),
            other => panic!("{but}: {other:?}"),
        }
    }
}
