//! Unified admission in process and on a store in memory; `cargo xtask prove admission` plays many more.

use throttlekit::store::MemoryStore;
use throttlekit_conformance::admission::{AdmissionBug, PAIRS, examine_fused, find_fused_bug};

#[tokio::test(flavor = "multi_thread")]
async fn sequential_and_fused_are_one_in_memory() {
    let make = |clock| async move { Ok(MemoryStore::with_clock(clock).keys_max(64)) };
    let report = examine_fused(make, 0..20 * PAIRS).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.timelines == 20 * PAIRS && report.saw_all(), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_pair_is_found() {
    assert_eq!(find_fused_bug(None, 4 * PAIRS).await, None, "the model agrees with itself");
    for bug in [
        AdmissionBug::RateKept,
        AdmissionBug::CostTaken,
        AdmissionBug::StaleAxis,
        AdmissionBug::LastDenier,
        AdmissionBug::AsksOn,
        AdmissionBug::DecisionOfAll,
        AdmissionBug::SettledTwice,
        AdmissionBug::RefundForgotten,
    ] {
        assert!(find_fused_bug(Some(bug), 4 * PAIRS).await.is_some(), "{bug:?}");
    }
}
