//! Guarantee `budget-use`, for three minutes; `cargo xtask prove budget-use` takes forty, and a real engine.

use throttlekit_conformance::budget_use::{Scenario, USE_BUGS, examine_seeded};

const MINUTES: u64 = 3;

#[test]
fn budget_use_holds_from_the_first_minute_whatever_others_do() {
    let broken: Vec<_> = Scenario::all().iter().filter_map(|one| one.examine(MINUTES, None).1).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn budget_use_finds_every_seeded_bug() {
    let (found, missed) = examine_seeded(MINUTES);
    assert!(missed.is_empty(), "blind to {missed:?}");
    assert_eq!(found.len(), USE_BUGS.len());
}
