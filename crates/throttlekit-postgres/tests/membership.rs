//! Membership records on PostgreSQL: swapped as in process, under races, and swept.

use std::time::Duration;

use crate::common::{builder, clear, client, fresh};
use throttlekit::store::{MEMBERSHIP_BYTES_MAX, MembershipStore, StoreError, Swapped};
use throttlekit_conformance::membership::{examine_membership, race};

const SCENARIOS: u64 = 150;
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn fleet_rolls_are_swapped_on_postgres_as_promised() {
    clear("tk_membership_same").await;
    builder("tk_membership_same").connect().await.unwrap();
    let make = |clock| builder("tk_membership_same").connections(2).clock(clock).connect();
    let report =
        examine_membership(make, 0..SCENARIOS).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.swapped > 50 && report.newer > 50, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_rolls_lose_no_heartbeat_of_a_race_on_postgres() {
    let seen = race(fresh("tk_membership_race").await, "k", 8, 25).await.unwrap();
    assert!(seen.granted > 100 && seen.lost > 0, "{seen:?}");
}

#[tokio::test]
async fn expired_records_are_deleted() {
    let store = fresh("tk_membership_swept").await;
    store.swap("over", 0, b"a", MINUTE).await.unwrap();
    store.swap("lasts", 0, b"b", MINUTE).await.unwrap();
    let update = "UPDATE tk_membership_swept.roll SET expires = 1 WHERE key = 'over'";
    client().await.batch_execute(update).await.unwrap();
    assert_eq!(store.load("over").await.unwrap().bytes, b"a", "until then they are there");
    assert_eq!(store.sweep(10).await.unwrap(), 1);
    assert_eq!(store.load("over").await.unwrap().version, 0);
    assert_eq!(store.load("lasts").await.unwrap().bytes, b"b");
}

#[tokio::test]
async fn the_longest_record_fits_and_none_is_longer() {
    let store = fresh("tk_membership_long").await;
    let swapped = store.swap("k", 0, &[7; MEMBERSHIP_BYTES_MAX], MINUTE).await;
    assert_eq!(swapped, Ok(Swapped::Done));
    let kept = store.load("k").await.unwrap();
    assert_eq!(kept.bytes, [7; MEMBERSHIP_BYTES_MAX]);
    let long = store.swap("k", kept.version, &[7; MEMBERSHIP_BYTES_MAX + 1], MINUTE).await;
    assert!(matches!(long, Err(StoreError::Misconfigured(_))), "{long:?}");
}
