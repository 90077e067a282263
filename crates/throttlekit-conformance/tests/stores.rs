//! `same-everywhere` for stores can fail: each seeded bug is found.

use throttlekit::store::StoreError;
use throttlekit_conformance::bugs::Found;
use throttlekit_conformance::stores::{
    STORE_SCENARIOS, SeededStore, StoreBug, examine_store, find_store_bug,
};

#[tokio::test(flavor = "multi_thread")]
async fn every_seeded_bug_of_a_store_is_found() {
    let mut outcome = Found::default();
    for bug in StoreBug::ALL {
        let scenarios = find_store_bug(*bug, STORE_SCENARIOS).await;
        println!("{scenarios:>6?}  {}", bug.name());
        outcome.note(bug.name(), scenarios.is_some());
    }
    assert_eq!(outcome.check(), Ok(()));
}

/// The report for the author of a store: the seed, the expected and the actual response, and as few
/// operations as possible.
#[tokio::test(flavor = "multi_thread")]
async fn a_difference_is_reported_with_a_short_counterexample() {
    let make = |clock| async { Ok(SeededStore::new(clock, StoreBug::WindowMovesBack)) };
    let violation = examine_store(make, 0..STORE_SCENARIOS).await.expect_err("it has a bug");
    let counterexample = violation.to_string();
    println!("{counterexample}");
    assert!(
        ["seed ", "want ", "got ", "limit 0: "].iter().all(|part| counterexample.contains(part)),
        "{counterexample}"
    );
    let operations =
        counterexample.lines().filter(|line| line.starts_with("  ") && line.contains(['(', '{'])).count();
    assert!(counterexample.contains("step back") && operations < 8, "{counterexample}");
}

#[tokio::test]
async fn a_store_that_cannot_be_created_is_reported() {
    let make = |_| async { Err::<SeededStore, _>(StoreError::misconfigured("no such engine")) };
    let violation = examine_store(make, 7..9).await.expect_err("there is no store");
    assert!(violation.counterexample.contains("no such engine"), "{violation}");
}
