//! Pools of regions on PostgreSQL: the same grants as the rule, under contention, and beside foreign rows.

use std::time::Duration;

use crate::common::{builder, clear, client, form, fresh};
use throttlekit::rate::shared::ScriptEncoding;
use throttlekit::store::{RegionRequest, RegionStore, Store, StoreError, Weight};
use throttlekit::{Budget, Limit, SharedFairLimiter};
use throttlekit_conformance::regions::{examine_pool, pool_contention, tenant_contention};

/// `cargo xtask verify fair-regions` runs many more.
const SCENARIOS: u64 = 400;
const HOUR: Budget = Budget::per_hour(2_000);

#[tokio::test(flavor = "multi_thread")]
async fn fair_regions_a_pool_on_postgres_grants_as_the_rule_does() {
    clear("tk_pool_same").await;
    builder("tk_pool_same").connect().await.unwrap();
    let make = |clock| builder("tk_pool_same").connections(2).clock(clock).connect();
    let report = examine_pool(make, 0..SCENARIOS).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.partial > 0 && report.refused > 0 && report.windows > 0, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fair_regions_contention_is_granted_the_limit_exactly_on_postgres() {
    let seen = pool_contention(fresh("tk_pool_contention").await, "regions").await;
    assert_eq!(seen.granted.iter().sum::<u64>(), seen.limit, "{seen:?}");
    let due = seen.limit / seen.granted.len() as u64;
    assert!(seen.granted.iter().all(|granted| granted.abs_diff(due) <= 1), "{seen:?}");
}

fn ask<'a>(key: &'a str, form: &'a ScriptEncoding, region: &'a str) -> RegionRequest<'a> {
    RegionRequest { key, form, region, weight: Weight::ONE, wants: 1 }
}

#[tokio::test]
async fn a_foreign_pool_row_is_reported_and_removed_by_reset() {
    let store = fresh("tk_pool_bad").await;
    let hour = form(Limit::fixed_window(10, Duration::from_secs(3_600)).unwrap());
    let client = client().await;
    for (i, row) in
        ["1, '{us}', '{1}', '{}'", "1, '{us}', '{0}', '{1}'", "1, '{us}', '{1}', '{-1}'"].iter().enumerate()
    {
        let key = format!("bad{i}");
        let insert = format!("INSERT INTO tk_pool_bad.pool VALUES ('{key}', {row})");
        client.batch_execute(&insert).await.unwrap();
        let told = store.grant(&ask(&key, &hour, "us")).await;
        assert!(matches!(&told, Err(StoreError::BadState(said)) if said.contains(&*key)), "{row}: {told:?}");
        store.reset(&[&key]).await.unwrap();
        assert_eq!(store.grant(&ask(&key, &hour, "us")).await.unwrap().grant.granted, 1);
    }
}

#[tokio::test]
async fn pools_whose_windows_are_over_are_swept() {
    let store = fresh("tk_pool_swept").await;
    let [past, hour] =
        [1, 3_600_000].map(|ms| form(Limit::fixed_window(10, Duration::from_millis(ms)).unwrap()));
    store.grant(&ask("over", &past, "us")).await.unwrap();
    store.grant(&ask("lasts", &hour, "us")).await.unwrap();
    let update = "UPDATE tk_pool_swept.pool SET ends = 1 WHERE key = 'over'";
    client().await.batch_execute(update).await.unwrap();
    assert_eq!(store.sweep(10).await.unwrap(), 1);
    assert_eq!(store.sweep(10).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn fair_regions_tenants_of_all_regions_get_the_limit_exactly_on_postgres() {
    let store = fresh("tk_pool_tenants").await;
    let place = |region: &str| {
        let place = SharedFairLimiter::builder(store.clone(), "api", HOUR).region(region);
        place.quantum(25).build().unwrap()
    };
    let got = tenant_contention(["us", "eu", "ap"].map(place).into()).await;
    assert_eq!(got.iter().sum::<u64>(), 2_000, "{got:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_of_processes_that_take_quanta_get_the_limit_exactly_on_postgres() {
    let store = fresh("tk_quanta_tenants").await;
    let place = |_| SharedFairLimiter::builder(store.clone(), "api", HOUR).quantum(25).build().unwrap();
    let got = tenant_contention((0..3).map(place).collect()).await;
    assert_eq!(got.iter().sum::<u64>(), 2_000, "{got:?}");
}
