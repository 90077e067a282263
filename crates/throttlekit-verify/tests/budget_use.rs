//! Guarantee `budget-use`, for three minutes; `cargo xtask verify budget-use` runs forty, and a real engine.

use throttlekit_verify::budget_use::{Scenario, find_seeded};

const MINUTES: u64 = 3;

#[test]
fn budget_use_holds_from_the_first_minute_whatever_other_keys_do() {
    let broken: Vec<_> = Scenario::all().iter().filter_map(|one| one.examine(MINUTES, None).1).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn budget_use_finds_every_seeded_bug() {
    let outcome = find_seeded(MINUTES);
    assert_eq!(outcome.check(), Ok(()));
    assert_eq!(outcome.total(), 9);
}
