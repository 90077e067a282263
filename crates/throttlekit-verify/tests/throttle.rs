//! Guarantee `throttle`, at a small size; `cargo xtask verify sketch` runs more of everything.

use throttlekit_verify::throttle;

#[test]
fn throttle_sheds_as_the_formula_says_and_converges() {
    let (runs, violations) = throttle::examine(100, throttle::shipped);
    assert!(violations.is_empty(), "{violations:#?}");
    assert!(runs.iter().any(|run| run.sent > 1.8), "the bound of K is reached: {runs:#?}");
}

#[test]
fn throttle_finds_every_seeded_bug() {
    let outcome = throttle::find_seeded(20);
    assert_eq!(outcome.check(), Ok(()));
    assert_eq!(outcome.total(), 8);
}
