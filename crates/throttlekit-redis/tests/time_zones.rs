//! Quotas by the clocks of a time zone, on real engines.

use std::sync::Arc;

use crate::common::{cluster, on_each, policy, single, valkey};
use throttlekit::clock::ManualClock;
use throttlekit_conformance::stores::examine_local_periods;
use throttlekit_redis::RedisStoreBuilder;

/// Traces per zone.
const TRACES: u64 = 40;

async fn admits_the_limit_in_each_local_period(builder: RedisStoreBuilder) {
    let (clock, store) = (ManualClock::new(), builder.connect().await.unwrap());
    let store = Arc::new(store.at(clock.clone()));
    let seen = examine_local_periods(&store, &clock, &policy("zones"), 0..TRACES).await;
    for (zone, seen) in seen.unwrap_or_else(|violation| panic!("{violation}")) {
        assert!(seen.admitted > 200 && seen.denied > 100 && seen.spent > 20, "{zone}: {seen:?}");
    }
}

on_each! { admits_the_limit_in_each_local_period:
    single => a_local_period_admits_its_limit_and_no_more_on_redis,
    cluster => a_local_period_admits_its_limit_and_no_more_on_a_redis_cluster,
    valkey => a_local_period_admits_its_limit_and_no_more_on_valkey,
}
