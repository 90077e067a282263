//! Law `reload` on Redis, Redis Cluster and Valkey: a limit with other numbers goes on from what was used.

mod common;

use std::time::Duration;

use common::{cluster, policy, single, valkey};
use throttlekit::Limit;
use throttlekit::tier::{Batch, Mode, TwoTier};
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

/// Nodes that are given another limit lease what is left of it: what was spent under the old one stays spent.
#[tokio::test(flavor = "multi_thread")]
async fn reload_two_tiers_on_redis() {
    let (store, policy) = (single().connect().await.unwrap(), policy("reload"));
    let passes = async |units, asks| {
        let month = Limit::fixed_window(units, Duration::from_secs(30 * 86_400)).unwrap();
        let tier = TwoTier::builder(store.clone(), &policy, month).mode(Mode::Leased).batch(Batch::Fixed(10));
        let node = tier.share(1).refill_at_percent(0).return_after(None).build().unwrap();
        let mut allowed = 0;
        for _ in 0..asks {
            allowed += u64::from(node.check("alice").await.unwrap().decision.allowed);
        }
        allowed
    };
    assert_eq!(passes(95, 40).await, 40);
    assert_eq!(passes(60, 50).await, 20);
    assert_eq!(passes(50, 10).await, 0);
    assert_eq!(passes(200, 200).await, 140);
}
