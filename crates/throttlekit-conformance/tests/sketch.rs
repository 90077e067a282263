//! Law `sketch`, at a size for every day; `cargo xtask prove sketch` takes more of everything.

use throttlekit_conformance::sketch::{self, MERGE_BUGS, SKETCH_BUGS, Size};

const SMALL: Size = Size { worlds: 60, asks: 500, secrets: 30, fleets: 2, thread_asks: 20_000 };

#[test]
fn sketch_nobody_is_admitted_more_and_few_are_denied_early() {
    let found = sketch::examine(SMALL);
    assert!(found.violations.is_empty(), "{:#?}", found.violations);
    assert!(
        found.tally.admitted > 0 && found.tally.windows > 60 && found.tally.early > 0,
        "{:?}",
        found.tally
    );
}

#[test]
fn sketch_finds_every_planted_bug() {
    let (found, missed) = sketch::examine_planted(SMALL);
    assert!(missed.is_empty(), "blind to {missed:?}");
    assert_eq!(found.len(), SKETCH_BUGS.len() + MERGE_BUGS.len() + 1);
}

#[test]
fn sketch_the_busiest_counted_by_themselves_deny_fewer_quiet_keys_early() {
    let contest = sketch::contest(200, 500, 1);
    assert!(contest.flood * 2 < contest.sketch, "{contest:?}");
}
