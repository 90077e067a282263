//! 200 tasks in each of three processes on one hot key: exactly the limit is admitted.

use crate::common::{cluster, policy, single, valkey};
use throttlekit_conformance::stores::{hot_key_contention, hot_key_in_processes, hot_key_policy};
use throttlekit_redis::RedisStoreBuilder;

async fn admits_exactly_the_limit(test: &str, builder: RedisStoreBuilder) {
    match hot_key_policy() {
        Some(policy) => hot_key_contention(builder.connect().await.unwrap(), &policy).await,
        None => {
            let seen = hot_key_in_processes(test, &policy("hot"));
            assert_eq!(seen.admitted, [seen.limit; 3]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_on_redis() {
    admits_exactly_the_limit("hot_key::a_hot_key_on_redis", single()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_on_a_redis_cluster() {
    admits_exactly_the_limit("hot_key::a_hot_key_on_a_redis_cluster", cluster()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_on_valkey() {
    admits_exactly_the_limit("hot_key::a_hot_key_on_valkey", valkey()).await;
}
