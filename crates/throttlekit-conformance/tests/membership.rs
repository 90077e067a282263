//! Guarantee `fleet-rolls`: membership records are swapped as in memory, and no heartbeat of a race is lost.

use throttlekit::store::MemoryStore;
use throttlekit_conformance::membership::{
    MembershipBug, examine_membership, find_in_race, find_membership_bug, race,
};

#[tokio::test]
async fn fleet_rolls_are_swapped_in_process_as_promised() {
    let report = examine_membership(|clock| async { Ok(MemoryStore::with_clock(clock)) }, 0..2_000).await;
    let report = report.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.swapped > 1_000 && report.newer > 1_000, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_rolls_lose_no_heartbeat_of_a_race_in_process() {
    let seen = race(MemoryStore::new(), "k", 16, 100).await.unwrap();
    assert!(seen.granted > 1_000, "{seen:?}");
}

#[tokio::test]
async fn fleet_rolls_every_seeded_bug_is_found() {
    for &bug in MembershipBug::ALL {
        assert!(find_membership_bug(bug, 2_000).await.is_some(), "blind to {bug:?}");
    }
}

#[tokio::test]
async fn fleet_rolls_a_race_exposes_lost_heartbeats() {
    for bug in [MembershipBug::NoVersionCheck, MembershipBug::SaysDoneAndKeepsTheOld] {
        assert!(find_in_race(bug, 20).await.is_some(), "a race is blind to {bug:?}");
    }
}
