//! Guarantee `slots`, at a size for every day; `cargo xtask verify slots held` takes more of everything.

use throttlekit::clock::ManualClock;
use throttlekit::store::MemoryStore;
use throttlekit_conformance::slots::{
    HolderBug, SeededSlots, Seen, SlotBug, check_holders, examine_slots, find_holder_bug, find_slot_bug,
    slots_after_a_clock_was_ahead,
};

#[tokio::test]
async fn slots_in_process_match_the_reference_model() {
    let report = examine_slots(|clock| async { Ok(MemoryStore::with_clock(clock)) }, 0..5_000).await;
    let report = report.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.saw_all(), "{report:?}");
}

#[tokio::test]
async fn a_slot_taken_while_the_clock_was_ahead_comes_back_within_its_lease() {
    let clock = ManualClock::default();
    let store = MemoryStore::with_clock(clock.clone());
    slots_after_a_clock_was_ahead(&store, &clock, "ahead").await.unwrap();
}

/// The check itself finds a store whose time stands still, and one whose ends stay ahead.
#[tokio::test]
async fn slots_after_a_clock_was_ahead_are_checked() {
    for bug in [SlotBug::TimeStandsStill, SlotBug::EndsStayAhead] {
        let clock = ManualClock::default();
        let store = SeededSlots::new(clock.clone(), bug);
        assert!(slots_after_a_clock_was_ahead(&store, &clock, "ahead").await.is_err(), "blind to {bug:?}");
    }
}

#[tokio::test]
async fn every_seeded_bug_of_slots_is_found() {
    for &bug in SlotBug::ALL {
        assert!(find_slot_bug(bug, 2_000).await.is_some(), "blind to {bug:?}");
    }
}

#[test]
fn slots_at_most_the_limit_of_holders_work_whatever_the_network_does() {
    let mut all = Seen::default();
    for seed in 0..1_000 {
        let seen = check_holders(seed, None).unwrap_or_else(|violation| panic!("{violation}"));
        all = Seen {
            worked: all.worked + seen.worked,
            fenced: all.fenced + seen.fenced,
            lost: all.lost + seen.lost,
            restarts: all.restarts + seen.restarts,
            full: all.full + seen.full,
        };
    }
    assert!(all.worked > 10_000 && all.fenced > 1_000 && all.lost > 100 && all.restarts > 100, "{all:?}");
    assert!(all.full > 900, "slots are worked in: {all:?}");
}

#[test]
fn slots_finds_every_seeded_bug_of_holders() {
    for &bug in HolderBug::ALL {
        assert!(find_holder_bug(bug, 5_000).is_some(), "blind to {bug:?}");
    }
}
