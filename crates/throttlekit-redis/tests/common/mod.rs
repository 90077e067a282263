//! Addresses of the engines, and unique names.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use throttlekit_redis::{RedisStore, RedisStoreBuilder};

/// Returns an address from `cargo xtask services up`. A test that needs an engine fails without it.
pub(crate) fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: eval \"$(cargo xtask services up)\""))
}

fn list(name: &str, scheme: &str) -> Vec<String> {
    let with_scheme = |at: &str| if at.contains("://") { at.to_owned() } else { format!("{scheme}{at}") };
    env(name).split(',').map(with_scheme).collect()
}

/// Sets long deadlines: tests share two cores with other processes, and check decisions rather than their
/// speed.
fn patient(builder: RedisStoreBuilder) -> RedisStoreBuilder {
    builder.deadline(Duration::from_secs(5))
}

pub(crate) fn single() -> RedisStoreBuilder {
    patient(RedisStore::builder(env("THROTTLEKIT_REDIS")))
}

pub(crate) fn valkey() -> RedisStoreBuilder {
    patient(RedisStore::builder(env("THROTTLEKIT_VALKEY")))
}

pub(crate) fn cluster() -> RedisStoreBuilder {
    patient(RedisStore::cluster(list("THROTTLEKIT_REDIS_CLUSTER", "")))
}

pub(crate) fn sentinel() -> RedisStoreBuilder {
    patient(RedisStore::sentinel(list("THROTTLEKIT_SENTINEL", "redis://"), "mymaster"))
}

/// Returns a policy name that no other call in any process uses.
pub(crate) fn policy(name: &str) -> String {
    format!("{name}-{:x}", RandomState::new().hash_one(name))
}

/// Opens a plain connection, to inspect the stored data.
pub(crate) async fn plain(variable: &str) -> redis::aio::MultiplexedConnection {
    redis::Client::open(env(variable)).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// Generates a test of each name, which runs the same code on another engine.
#[allow(unused_macros, reason = "each test file takes what it needs")]
macro_rules! on_each {
    ($run:ident: $($engine:ident => $test:ident,)+) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            $run($engine()).await;
        })+
    };
}
#[allow(unused_imports, reason = "each test file takes what it needs")]
pub(crate) use on_each;
