//! A few seeds of clusters that share slots; `cargo xtask verify slots models` runs thousands.

use throttlekit_sim::slots::{self, SlotBug};

const SEEDS: u64 = 30;

#[test]
fn no_invariant_is_broken() {
    for seed in 0..SEEDS {
        assert_eq!(slots::run(seed, None, &mut |_| ()).broken, None, "seed {seed}");
    }
}

#[test]
fn one_seed_is_one_run() {
    for seed in 0..2 {
        let told = |seed| {
            let mut lines = Vec::new();
            let report = slots::run(seed, None, &mut |line| lines.push(line));
            (lines, report)
        };
        assert_eq!(told(seed), told(seed));
    }
}

/// Some of each kind; `cargo xtask verify` finds all.
#[test]
fn seeded_bugs_are_found() {
    use SlotBug::*;
    let bugs = [TornReport, LimitsAdded, HeartbeatRevives, ReleaseByIdAlone, HolderUnfenced];
    for bug in bugs {
        assert!(slots::hunt(bug, SEEDS).is_some(), "{} was not found", bug.name());
    }
}
