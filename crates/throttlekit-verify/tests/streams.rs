//! Guarantee `budget-streams`, at a size for every day; `cargo xtask verify learn` plays more scenarios.

use throttlekit_verify::streams;

#[test]
fn budget_streams_hold_for_any_reservation_and_whatever_becomes_of_a_stream() {
    streams::examine(0..250, None).unwrap();
}

#[test]
fn budget_streams_find_every_bug_seeded_between_streams_and_store() {
    let outcome = streams::find_seeded(250);
    assert_eq!(outcome.check(), Ok(()));
    assert_eq!(outcome.total(), 7);
}
