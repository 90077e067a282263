//! Unified admission in process and on a store in memory; `cargo xtask verify admission` runs many more.

use throttlekit::store::MemoryStore;
use throttlekit_verify::admission::{
    FUSED_BUGS, MATRIX_BUGS, OrderBug, PAIRS, PRICED_BUGS, cells, check_order, examine_fused, examine_matrix,
    examine_priced, find_fused_bug, find_matrix_bug, find_priced_bug,
};

#[tokio::test(flavor = "multi_thread")]
async fn sequential_and_fused_are_one_in_memory() {
    let make = |clock| async move { Ok(MemoryStore::with_clock(clock).memory_budget(1 << 20)) };
    let report = examine_fused(make, 0..7 * PAIRS).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.traces == 7 * PAIRS && report.saw_all(), "{report:?}");
    // Limits that forget nothing decide differently here from a store that has forgotten an idle key.
    examine_fused(make, 26_489..26_490).await.unwrap_or_else(|violation| panic!("{violation}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn seeded_bugs_of_pairs_are_found() {
    assert_eq!(find_fused_bug(None, 4 * PAIRS).await, None, "the model agrees with itself");
    for bug in FUSED_BUGS {
        assert!(find_fused_bug(Some(bug), 4 * PAIRS).await.is_some(), "{bug:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_composition_matrix_in_memory() {
    let make = |clock| async move { Ok(MemoryStore::with_clock(clock)) };
    let report = examine_matrix(make, 1, true).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.cells == cells() && report.adds_up(), "{report:?}");
    assert!(report.told_by.iter().all(|told| *told > 0), "{report:?}");
    println!("{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn seeded_bugs_of_the_matrix_are_found() {
    assert_eq!(find_matrix_bug(None).await, None, "the model satisfies its invariants");
    for bug in MATRIX_BUGS {
        assert!(find_matrix_bug(Some(bug)).await.is_some(), "{bug:?}");
    }
}

#[test]
fn algebra_is_independent_of_the_order_of_limits() {
    (0..1_000)
        .try_for_each(|seed| check_order(None, seed))
        .unwrap_or_else(|counterexample| panic!("{counterexample}"));
    for &bug in OrderBug::ALL {
        assert!((0..1_000).any(|seed| check_order(Some(bug), seed).is_err()), "{bug:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bid_price_only_removes_admits() {
    let make = |clock| async move { Ok(MemoryStore::with_clock(clock).memory_budget(1 << 20)) };
    let report = examine_priced(make, 0..450).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.traces == 450 && report.saw_all(), "{report:?}");
    assert_eq!(find_priced_bug(None, 300).await, None, "the model satisfies its invariants");
    for bug in PRICED_BUGS {
        assert!(find_priced_bug(Some(bug), 600).await.is_some(), "{bug:?}");
    }
}
