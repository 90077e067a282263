//! Invariant `reload-room`: a change of numbers gives capacity at once and gives nothing away; and the check
//! can fail.

use throttlekit::store::MemoryStore;
use throttlekit_verify::reload::{ReloadBug, Seeded, examine_reload, find_reload_bug};

#[tokio::test]
async fn reload_room_in_a_memory_store() {
    let make = |clock| async { Ok(MemoryStore::with_clock(clock)) };
    let report = examine_reload(make, 0..5_000).await.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{report:?}");
    assert!(report.carried > 1_000 && report.off_grid > 100, "{report:?}");
    assert!(report.lent > 100 && report.repeated > 10, "{report:?}");
    assert!(report.at_other_pace > 1_000 && report.waits > 100, "{report:?}");
}

/// A control: the seeded store passes without a bug.
#[tokio::test]
async fn reload_room_in_the_store_that_bugs_are_seeded_in() {
    let make = |clock| async { Ok(Seeded::new(clock, None)) };
    examine_reload(make, 0..2_000).await.unwrap_or_else(|violation| panic!("{violation}"));
}

#[tokio::test]
async fn reload_room_every_seeded_bug_is_found() {
    for &bug in ReloadBug::ALL {
        let scenarios = find_reload_bug(bug, 20_000).await;
        println!("{:>6}  {}", scenarios.unwrap_or_default(), bug.name());
        assert!(scenarios.is_some(), "blind to {bug:?}");
    }
}
