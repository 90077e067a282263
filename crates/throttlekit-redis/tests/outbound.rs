//! Outbound calls of several processes to one provider account, over real servers.

use crate::common::{cluster, policy, single, valkey};
use throttlekit_redis::RedisStoreBuilder;
use throttlekit_verify::outbound::examine_account;

async fn examine(builder: impl Fn() -> RedisStoreBuilder) {
    let connect = async || builder().connect().await.unwrap();
    let stores = [connect().await, connect().await, connect().await];
    examine_account(stores, &policy("account")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_share_an_account_on_redis() {
    examine(single).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_share_an_account_on_a_redis_cluster() {
    examine(cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_share_an_account_on_valkey() {
    examine(valkey).await;
}
