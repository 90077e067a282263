//! A few seeds of the cluster; `cargo xtask verify lease-sim` runs ten thousand.

use throttlekit_sim::bugs::LeaseBug;
use throttlekit_sim::cluster;

const SEEDS: u64 = 40;

#[test]
fn no_invariant_is_broken() {
    for seed in 0..SEEDS {
        let broken = cluster::run(seed, None).broken;
        assert_eq!(broken, None, "seed {seed}: cargo xtask verify lease-sim --replay {seed}");
    }
}

/// Two of each kind; `cargo xtask verify` finds all.
#[test]
fn seeded_bugs_are_found() {
    use LeaseBug::*;
    for bug in [
        ReplyAnchored,
        CreditPerWaiter,
        ReturnKept,
        DenialOutlives,
        LostWaiter,
        LimitChangeForgets,
        FenceMissing,
    ] {
        let found = (0..SEEDS).find(|&seed| cluster::run(seed, Some(bug)).broken.is_some());
        assert!(found.is_some(), "{} was not found", bug.name());
    }
}
