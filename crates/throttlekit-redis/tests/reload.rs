//! Law `reload` on Redis, Redis Cluster and Valkey: a limit with other numbers goes on from what was used.

mod common;

use common::{cluster, single, valkey};
use throttlekit_conformance::reload::examine_reload;
use throttlekit_redis::Builder;

const WORLDS: u64 = 800;

async fn goes_on_from_what_was_used(builder: Builder) {
    let store = builder.connect().await.unwrap();
    let make = move |clock| std::future::ready(Ok(store.at(clock)));
    let report = examine_reload(make, 0..WORLDS).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.carried > 100 && report.off_grid > 10 && report.lent > 10, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_on_redis() {
    goes_on_from_what_was_used(single()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_on_a_redis_cluster() {
    goes_on_from_what_was_used(cluster()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_on_valkey() {
    goes_on_from_what_was_used(valkey()).await;
}
