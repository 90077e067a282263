//! Invariant `reload-room` on Redis, Redis Cluster and Valkey: a limit with other numbers continues from the
//! existing use.

use std::time::Duration;

use crate::common::{cluster, on_each, policy, single, valkey};
use throttlekit::leasing::{Batch, Leasing};
use throttlekit::rate::Rate;
use throttlekit::{Limit, SharedLimiter};
use throttlekit_redis::RedisStoreBuilder;
use throttlekit_verify::reload::examine_reload;

/// `cargo xtask verify reload-room` runs more.
const SCENARIOS: u64 = 200;

async fn goes_on_from_what_was_used(builder: RedisStoreBuilder) {
    // Longer than any scenario takes, since the engine expires keys by its own clock.
    let store = builder.grace(Duration::from_secs(600)).connect().await.unwrap();
    let make = move |clock| std::future::ready(Ok(store.at(clock)));
    let report = examine_reload(make, 0..SCENARIOS).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.carried > 25 && report.off_grid > 2 && report.lent > 2, "{report:?}");
    assert!(report.at_other_pace > 25 && report.waits > 2, "{report:?}");
}

on_each! { goes_on_from_what_was_used:
    single => reload_room_on_redis,
    cluster => reload_room_on_a_redis_cluster,
    valkey => reload_room_on_valkey,
}

/// Nodes with a changed limit lease what is left of it: units spent under the old one stay spent.
#[tokio::test(flavor = "multi_thread")]
async fn reload_room_with_leases_on_redis() {
    let (store, policy) = (single().connect().await.unwrap(), policy("reload"));
    let passes = async |units, asks| {
        let month = Limit::fixed_window(units, Duration::from_secs(30 * 86_400)).unwrap();
        let leasing = Leasing::new().batch(Batch::Fixed(10)).share(1).refill_at_percent(0).return_after(None);
        let node = SharedLimiter::builder(store.clone(), &policy, month).leased_with(leasing);
        let node = node.build().unwrap();
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

/// Five per hour exhausted, then a thousand per hour: 995 at once, by every kind of request.
#[tokio::test(flavor = "multi_thread")]
async fn a_raised_rate_applies_at_once_on_redis() {
    let (store, policy) = (single().connect().await.unwrap(), policy("raised"));
    let limiter = |units| SharedLimiter::new(store.clone(), &policy, Rate::per_hour(units)).unwrap();
    let (few, many) = (limiter(5), limiter(1_000));
    for left in (0..5).rev() {
        assert_eq!(few.check("acme").await.unwrap().decision.remaining, left);
    }
    assert!(!few.check("acme").await.unwrap().decision.allowed);
    let peeked = many.peek("acme").await.unwrap();
    assert!(peeked.allowed && peeked.remaining >= 995, "{peeked:?}");
    let raised = many.check("acme").await.unwrap().decision;
    assert!(raised.allowed && raised.remaining >= 994, "{raised:?}");
    assert!(!few.check("acme").await.unwrap().decision.allowed, "and nothing by going back");
}
