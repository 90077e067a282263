//! Pools of regions on real engines: the same grants as the rule, under contention, and beside foreign keys.

use std::time::Duration;

use crate::common::{cluster, on_each, plain, policy, single, valkey};
use crate::rig::{Server, until};
use throttlekit::store::{KeySpace, RegionRequest, RegionStore, StoreError};
use throttlekit::{Budget, Limit, SharedFairLimiter};
use throttlekit_conformance::regions::{examine_pool, pool_contention, tenant_contention};
use throttlekit_core::fair::{Weight, pool::REGIONS_MAX};
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_redis::{Failover, RedisStore, RedisStoreBuilder};

/// Scenarios per engine; `cargo xtask verify fair-regions` runs many more.
const SCENARIOS: u64 = 400;
const HOUR: Budget = Budget::per_hour(2_000);
const RECOVERY_MAX: Duration = Duration::from_secs(10);

async fn grants_as_the_rule_does(builder: RedisStoreBuilder) {
    let store = builder.connect().await.unwrap();
    let make = move |clock| std::future::ready(Ok(store.at(clock)));
    let report = examine_pool(make, 0..SCENARIOS).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.partial > 0 && report.refused > 0 && report.windows > 0, "{report:?}");
}

on_each! { grants_as_the_rule_does:
    single => fair_regions_a_pool_on_redis_grants_as_the_rule_does,
    cluster => fair_regions_a_pool_on_a_redis_cluster_grants_as_the_rule_does,
    valkey => fair_regions_a_pool_on_valkey_grants_as_the_rule_does,
}

async fn grants_the_limit_and_no_more(builder: RedisStoreBuilder) {
    let seen = pool_contention(builder.connect().await.unwrap(), &policy("regions")).await;
    assert_eq!(seen.granted.iter().sum::<u64>(), seen.limit, "{seen:?}");
    let due = seen.limit / seen.granted.len() as u64;
    assert!(seen.granted.iter().all(|granted| granted.abs_diff(due) <= 1), "{seen:?}");
}

on_each! { grants_the_limit_and_no_more:
    single => fair_regions_contention_is_granted_the_limit_exactly_on_redis,
    cluster => fair_regions_contention_is_granted_the_limit_exactly_on_a_redis_cluster,
}

fn hour(units: u64) -> ScriptEncoding {
    ScriptEncoding::of(&Limit::fixed_window(units, Duration::from_secs(3_600)).unwrap()).unwrap()
}

fn ask<'a>(key: &'a str, form: &'a ScriptEncoding, region: &'a str) -> RegionRequest<'a> {
    RegionRequest { key, form, region, weight: Weight::ONE, wants: 1 }
}

#[tokio::test]
async fn a_foreign_pool_key_is_reported_and_left_alone() {
    let (store, form) = (single().connect().await.unwrap(), hour(10));
    let mut beside = plain("THROTTLEKIT_REDIS").await;
    for foreign in ["not ours", "12 us", "12 us 1 2 eu", "12 us 0 2", "-1", "12  us 1 2"] {
        let key = KeySpace::pool("tk", &policy("regions"));
        redis::cmd("SET").arg(&key).arg(foreign).arg("PX").arg(60_000).exec_async(&mut beside).await.unwrap();
        let told = store.grant(&ask(&key, &form, "us")).await;
        assert!(
            matches!(&told, Err(StoreError::BadState(said)) if said.contains(&*key)),
            "{foreign}: {told:?}"
        );
        let left: String = redis::cmd("GET").arg(&key).query_async(&mut beside).await.unwrap();
        assert_eq!(left, foreign);
    }
    let key = KeySpace::pool("tk", &policy("regions"));
    redis::cmd("RPUSH").arg(&key).arg("a list").exec_async(&mut beside).await.unwrap();
    let told = store.grant(&ask(&key, &form, "us")).await;
    assert!(matches!(told, Err(StoreError::BadState(_))), "{told:?}");
    redis::cmd("DEL").arg(&key).exec_async(&mut beside).await.unwrap();
}

#[tokio::test]
async fn a_region_above_the_maximum_is_rejected_by_a_pool_on_redis() {
    let (store, form, key) =
        (single().connect().await.unwrap(), hour(10_000), KeySpace::pool("tk", &policy("regions")));
    for region in 0..REGIONS_MAX {
        let granted = store.grant(&ask(&key, &form, &region.to_string())).await.unwrap();
        assert_eq!(granted.grant.granted, 1);
    }
    let refused = store.grant(&ask(&key, &form, "one more")).await;
    assert!(matches!(refused, Err(StoreError::Misconfigured(_))), "{refused:?}");
    assert_eq!(
        store.grant(&ask(&key, &form, "7")).await.unwrap().grant.granted,
        1,
        "who is known is still served"
    );
}

/// A server that cannot vouch for the window grants nothing of it; in a window whose start it has seen it
/// does.
#[tokio::test]
async fn a_fence_applies_to_pools() {
    // Of its own: other tests leave a lineage record by their clocks.
    let server = Server::start(&[]).await;
    let fence = Failover::Fence { isolation: Duration::from_millis(1) };
    let store = RedisStore::builder(server.url()).deadline(RECOVERY_MAX).failover(fence);
    let store = store.connect().await.unwrap();
    let key = KeySpace::pool("tk", &policy("regions"));
    let day =
        ScriptEncoding::of(&Limit::fixed_window(10, Duration::from_secs(365 * 86_400)).unwrap()).unwrap();
    let told = store.grant(&ask(&key, &day, "us")).await;
    assert!(told.as_ref().is_err_and(StoreError::is_outage), "{told:?}");
    let second = ScriptEncoding::of(&Limit::fixed_window(10, Duration::from_millis(50)).unwrap()).unwrap();
    until("a grant", RECOVERY_MAX, async || {
        store.grant(&ask(&key, &second, "us")).await.is_ok_and(|granted| granted.grant.granted > 0)
    })
    .await;
}

async fn tenants_of_all_regions_get_the_limit(builder: RedisStoreBuilder) {
    let store = builder.connect().await.unwrap();
    let name = policy("regions");
    let place = |region: &str| {
        let place = SharedFairLimiter::builder(store.clone(), &name, HOUR).region(region);
        place.quantum(25).build().unwrap()
    };
    let got = tenant_contention(["us", "eu", "ap"].map(place).into()).await;
    assert_eq!(got.iter().sum::<u64>(), 2_000, "{got:?}");
}

on_each! { tenants_of_all_regions_get_the_limit:
    single => fair_regions_tenants_of_all_regions_get_the_limit_exactly_on_redis,
    cluster => fair_regions_tenants_of_all_regions_get_the_limit_exactly_on_a_redis_cluster,
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_of_processes_that_take_quanta_get_the_limit_exactly_on_redis() {
    let store = single().connect().await.unwrap();
    let name = policy("quanta");
    let place = |_| SharedFairLimiter::builder(store.clone(), &name, HOUR).quantum(25).build().unwrap();
    let got = tenant_contention((0..3).map(place).collect()).await;
    assert_eq!(got.iter().sum::<u64>(), 2_000, "{got:?}");
}
