//! Quotas by the clocks of a time zone, on PostgreSQL, and on the store in memory.

use std::sync::Arc;

use crate::common::{self, builder};
use throttlekit::clock::ManualClock;
use throttlekit::store::{MemoryStore, Store};
use throttlekit_conformance::stores::examine_local_periods;

/// Traces per zone.
const TRACES: u64 = 40;

async fn admits_the_limit_in_each_local_period<S: Store>(store: S, clock: &ManualClock) {
    let seen = examine_local_periods(&Arc::new(store), clock, "zones", 0..TRACES).await;
    for (zone, seen) in seen.unwrap_or_else(|violation| panic!("{violation}")) {
        assert!(seen.admitted > 200 && seen.denied > 100 && seen.spent > 20, "{zone}: {seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_period_admits_its_limit_and_no_more_on_postgres() {
    let clock = ManualClock::new();
    common::clear("tk_zones").await;
    let store = builder("tk_zones").connections(2).clock(clock.clone()).connect().await.unwrap();
    admits_the_limit_in_each_local_period(store, &clock).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_period_admits_its_limit_and_no_more_in_memory() {
    let clock = ManualClock::new();
    admits_the_limit_in_each_local_period(MemoryStore::with_clock(clock.clone()), &clock).await;
}
