//! Law `fair-regions`, at a size for every day; `cargo xtask verify fair-regions` takes more of everything.

use throttlekit::store::MemoryStore;
use throttlekit_conformance::regions::{
    PoolBug, RegionBug, check_fairness, check_safety, examine_pool, find_pool_bug, find_region_bug,
};

#[tokio::test]
async fn a_pool_in_process_grants_as_the_rule_does() {
    let report = examine_pool(|clock| async { Ok(MemoryStore::with_clock(clock)) }, 0..500).await;
    let report = report.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.partial > 0 && report.refused > 0 && report.rolls > 0, "{report:?}");
}

#[tokio::test]
async fn every_seeded_bug_of_a_pool_is_found() {
    for &bug in PoolBug::ALL {
        assert!(find_pool_bug(bug, 500).await.is_some(), "blind to {bug:?}");
    }
}

#[test]
fn fair_regions_every_tenant_gets_what_one_arbiter_of_all_would_give_it() {
    for seed in 0..1_000 {
        check_fairness(seed, None).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn fair_regions_no_window_admits_more_than_the_limit_whatever_the_network_does() {
    for seed in 0..1_000 {
        check_safety(seed, None).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn fair_regions_finds_every_seeded_bug() {
    for &bug in RegionBug::ALL {
        assert!(find_region_bug(bug, 2_000).is_some(), "blind to {bug:?}");
    }
}
