//! Quotas by the clocks of a time zone, on PostgreSQL, and on the store in memory.

use std::sync::Arc;

use crate::common::{self, builder};
use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::store::{MemoryStore, Store};
use throttlekit::time_zone;
use throttlekit_conformance::stores::examine_local_periods;

/// Traces per zone.
const TRACES: u64 = 40;

fn at(text: &str) -> Timestamp {
    Timestamp::from_millis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond() as u64)
}

/// Zones and instants in 2026 at which their clocks change: in the north, in the south, by half an hour, over midnight.
fn zones() -> [(&'static str, [Timestamp; 2]); 5] {
    [
        ("Europe/Berlin", ["2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"]),
        ("America/New_York", ["2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z"]),
        ("Australia/Sydney", ["2026-04-04T16:00:00Z", "2026-10-03T16:00:00Z"]),
        ("Australia/Lord_Howe", ["2026-04-04T15:00:00Z", "2026-10-03T15:30:00Z"]),
        ("America/Santiago", ["2026-04-05T03:00:00Z", "2026-09-06T04:00:00Z"]),
    ]
    .map(|(name, changes)| (name, changes.map(at)))
}

/// Returns the local date by a calendar library, in days since the epoch.
fn date(zone: &jiff::tz::TimeZone, now: Timestamp) -> i64 {
    let local = zone.to_datetime(jiff::Timestamp::from_nanosecond(now.as_nanos().into()).unwrap());
    local.date().since(jiff::civil::date(1970, 1, 1)).unwrap().get_days().into()
}

async fn admits_the_limit_in_each_local_period<S: Store>(store: S, clock: &ManualClock) {
    let store = Arc::new(store);
    for (name, changes) in zones() {
        let (zone, known) = (time_zone::find(name).unwrap(), jiff::tz::TimeZone::get(name).unwrap());
        let of = |now| date(&known, now);
        let policy = name.replace('/', "-");
        let seen = examine_local_periods(&store, clock, &policy, zone, of, &changes, 0..TRACES).await;
        let seen = seen.unwrap_or_else(|violation| panic!("{violation}"));
        println!("{name}: {seen:?}");
        assert!(seen.admitted > 200 && seen.denied > 100 && seen.spent > 20, "{name}: {seen:?}");
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
