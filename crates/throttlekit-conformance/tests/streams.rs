//! Law `budget-streams`, at a size for every day; `cargo xtask prove learn` plays more worlds.

use throttlekit_conformance::streams;

#[test]
fn budget_streams_hold_for_any_reservation_and_whatever_becomes_of_a_stream() {
    streams::examine(0..250, None).unwrap();
}

#[test]
fn budget_streams_find_every_bug_planted_between_streams_and_store() {
    let (found, missed) = streams::examine_planted(250);
    assert!(missed.is_empty(), "blind to {missed:?}");
    assert_eq!(found.len(), streams::STREAM_BUGS.len());
}
