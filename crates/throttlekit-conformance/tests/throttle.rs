//! Law `throttle`, at a size for every day; `cargo xtask prove sketch` takes more of everything.

use throttlekit_conformance::throttle;

#[test]
fn throttle_sheds_as_the_formula_says_and_converges() {
    let (runs, violations) = throttle::examine(100, throttle::shipped);
    assert!(violations.is_empty(), "{violations:#?}");
    assert!(runs.iter().any(|run| run.sent > 1.8), "the bound of K is reached: {runs:#?}");
}

#[test]
fn throttle_finds_every_planted_bug() {
    let (found, missed) = throttle::examine_planted(20);
    assert!(missed.is_empty(), "blind to {missed:?}");
    assert_eq!(found.len(), throttle::PLANTED);
}
