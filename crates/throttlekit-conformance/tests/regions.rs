//! A pool in process against the rule; `cargo xtask verify fair-regions` takes every engine.

use throttlekit::store::MemoryStore;
use throttlekit_conformance::regions::{PoolBug, examine_pool, find_pool_bug};

#[tokio::test]
async fn a_pool_in_process_grants_as_the_rule_does() {
    let report = examine_pool(|clock| async { Ok(MemoryStore::with_clock(clock)) }, 0..500).await;
    let report = report.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.partial > 0 && report.refused > 0 && report.windows > 0, "{report:?}");
}

#[tokio::test]
async fn every_seeded_bug_of_a_pool_is_found() {
    for &bug in PoolBug::ALL {
        assert!(find_pool_bug(bug, 500).await.is_some(), "blind to {bug:?}");
    }
}
