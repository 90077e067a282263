//! Admission under faults, at a small size.

use throttlekit_verify::drill::{DrillBug, drill, find};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admission_leaks_no_slot_and_its_ledgers_are_exact_under_faults() {
    let drilled = drill(0..1_000, None, |_| {}).await.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{drilled:?}");
    assert!(drilled.admitted > 1_000 && drilled.interrupted > 100 && drilled.panicked > 100, "{drilled:?}");
    assert!(drilled.faults * 50 > drilled.store_calls, "{drilled:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_drill_finds_every_seeded_bug() {
    for &bug in DrillBug::ALL {
        let found = find(bug, 1_000).await;
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "blind to {bug:?}");
    }
}
