//! Guarantee `fair-regions`, at a small size; `cargo xtask verify fair-regions` runs more of everything.

use throttlekit_verify::regions::{RegionBug, check_fairness, check_safety, find_region_bug};

#[test]
fn fair_regions_every_tenant_gets_its_share_under_one_arbiter() {
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
