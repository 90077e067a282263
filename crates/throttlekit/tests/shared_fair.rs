//! Several participants that share one budget: production code end to end, over a store in process.
#![cfg(feature = "store")]

use std::sync::Arc;
use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::store::MemoryStore;
use throttlekit::{Budget, BuildError, Call, SharedFairLimiter};
use throttlekit_conformance::regions::tenant_contention;

const HOUR: Duration = Duration::from_secs(3_600);

fn hour(units: u64) -> Budget {
    Budget::per_hour(units)
}

#[tokio::test(flavor = "multi_thread")]
async fn fair_regions_in_one_process_admit_the_limit_exactly() {
    let pool = Arc::new(MemoryStore::new());
    let place = |region: &str| {
        let place = SharedFairLimiter::builder(pool.clone(), "api", hour(1_000)).region(region);
        place.quantum(7).build().unwrap()
    };
    let got = tenant_contention(["us", "eu", "ap"].map(place).into()).await;
    assert_eq!(got.iter().sum::<u64>(), 1_000, "{got:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_take_quanta_admit_the_limit_exactly() {
    let store = Arc::new(MemoryStore::new());
    let place = |_| SharedFairLimiter::builder(store.clone(), "api", hour(1_000)).quantum(7).build().unwrap();
    let got = tenant_contention((0..3).map(place).collect()).await;
    assert_eq!(got.iter().sum::<u64>(), 1_000, "{got:?}");
}

/// Tenants of weight 4 and 1 request in turn, on two participants, until neither is admitted. Returns the
/// units of each.
async fn in_turn(places: [SharedFairLimiter; 2]) -> [u64; 2] {
    let (mut got, mut in_vain) = ([0; 2], 0);
    while in_vain < 4 {
        let before = got;
        for place in &places {
            for (tenant, weight) in [4, 1].into_iter().enumerate() {
                let call = Call::by(["heavy", "light"][tenant]).weight(weight);
                let answer = place.check(call).await.unwrap();
                got[tenant] += u64::from(answer.decision.allowed);
            }
        }
        in_vain = if got == before { in_vain + 1 } else { 0 };
        if in_vain > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    got
}

/// The behavior that `docs/guides/regions.md` documents for quanta, and the reason for pools.
#[tokio::test]
async fn processes_are_fair_to_each_others_tenants_by_a_pool_and_not_by_quanta() {
    let store = Arc::new(MemoryStore::new());
    let region = |name| {
        let region = SharedFairLimiter::builder(store.clone(), "pool", hour(100)).region(name);
        region.quantum(1).hold(Duration::ZERO).build().unwrap()
    };
    assert_eq!(in_turn([region("a"), region("b")]).await, [80, 20]);
    let process = |_| {
        let process = SharedFairLimiter::builder(store.clone(), "quanta", hour(100));
        process.quantum(1).hold(Duration::ZERO).build().unwrap()
    };
    let [heavy, light] = in_turn([0, 1].map(process)).await;
    assert!(heavy + light == 100 && light > 25, "{light}");
}

#[tokio::test]
async fn unused_units_are_available_again_while_their_window_lasts() {
    let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let place = SharedFairLimiter::builder(store, "api", hour(100)).quantum(100);
    let place = place.clock(clock.clone()).build().unwrap();
    let (charged, receipt) = place.charge(("ann", 100)).await.unwrap();
    assert!(charged.decision.allowed && place.stats().in_hand == 0);
    place.settle(receipt.unwrap(), 70).await.unwrap();
    assert_eq!(place.stats().in_hand, 30);
    let (_, receipt) = place.charge(("ann", 30)).await.unwrap();
    clock.advance(HOUR);
    assert!(place.check(("ann", 100)).await.unwrap().decision.allowed);
    place.settle(receipt.unwrap(), 0).await.unwrap();
    assert_eq!(place.stats().in_hand, 0, "that window is over");
}

/// A participant cannot charge units that it was not granted.
#[tokio::test]
async fn use_beyond_the_estimate_is_charged_as_far_as_the_tenant_can_have_it() {
    let place = SharedFairLimiter::new(MemoryStore::new(), "api", hour(100)).unwrap();
    let (_, receipt) = place.charge(("ann", 40)).await.unwrap();
    place.settle(receipt.unwrap(), 70).await.unwrap();
    assert_eq!(place.share_of("ann").unwrap().used, 70);
    assert_eq!(place.peek("ann").await.unwrap().decision.remaining, 30);
    let (_, receipt) = place.charge(("ann", 0)).await.unwrap();
    place.settle(receipt.unwrap(), 1_000).await.unwrap();
    assert_eq!(place.share_of("ann").unwrap().used, 100);
    assert!(!place.peek("ann").await.unwrap().decision.allowed);
}

/// A flood of names only displaces its own entries; a displaced tenant keeps its use.
#[tokio::test]
async fn tenants_beyond_the_cap_get_no_fresh_budget() {
    let store = Arc::new(MemoryStore::new());
    let place =
        SharedFairLimiter::builder(store, "api", hour(100)).quantum(10).tenants_max(4).build().unwrap();
    let mut admitted = 0;
    for i in 0..1_000 {
        admitted += u64::from(place.check(&format!("tenant {i}")).await.unwrap().decision.allowed);
    }
    let stats = place.stats();
    assert!(admitted <= 100 && stats.tenants <= 4 && stats.displaced >= 996, "{admitted} {stats:?}");
}

#[test]
fn budgets_that_cannot_be_shared_are_refused_where_they_are_built() {
    let build = |budget| SharedFairLimiter::builder(Arc::new(MemoryStore::new()), "api", budget);
    let blink = Budget::per(10, Duration::from_millis(1));
    assert!(matches!(build(blink).region("us").build(), Err(BuildError::LeaseTooShort(_))));
    assert!(matches!(build(hour(0)).build(), Err(BuildError::Limit(_))));
}

/// The share shows the inputs of the next decisions, and reading it creates no entry.
#[tokio::test]
async fn a_share_reports_weight_use_and_guarantee_at_no_cost() {
    let store = Arc::new(MemoryStore::new());
    let weights = |tenant: &[u8]| if tenant == b"acme" { 3 } else { 1 };
    let place = SharedFairLimiter::builder(store, "api", hour(100)).weights(weights).build().unwrap();
    assert_eq!(place.share_of("acme"), None, "it has not asked");
    for (tenant, cost) in [("acme", 30), ("bob", 5)] {
        assert!(place.check(Call::by(tenant).cost(cost)).await.unwrap().decision.allowed);
    }
    let seen =
        |tenant: &str| place.share_of(tenant).map(|share| (share.weight, share.used, share.guaranteed));
    assert_eq!((seen("acme"), seen("bob")), (Some((3, 30, 75)), Some((1, 5, 25))));
    assert_eq!((seen("carl"), place.stats().tenants), (None, 2));
}
