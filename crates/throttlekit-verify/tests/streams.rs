//! Guarantee `budget-streams`, at a small size; `cargo xtask verify learn` runs more scenarios.

use throttlekit_verify::streams;

#[test]
fn budget_streams_hold_for_any_reservation_and_any_end_of_a_stream() {
    streams::examine(0..250, None).unwrap();
}

#[test]
fn budget_streams_find_every_bug_seeded_between_streams_and_store() {
    let outcome = streams::find_seeded(250);
    assert_eq!(outcome.check(), Ok(()));
    assert_eq!(outcome.total(), 7);
}
