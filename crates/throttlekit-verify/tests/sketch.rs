//! Guarantee `sketch`, at a small size; `cargo xtask verify sketch` runs more of everything.

use throttlekit_verify::sketch::{self, Size};

const SMALL: Size = Size { scenarios: 60, asks: 500, secrets: 30, fleets: 2, thread_asks: 20_000 };

#[test]
fn sketch_never_exceeds_the_limit_and_few_are_denied_early() {
    let found = sketch::examine(SMALL);
    assert!(found.violations.is_empty(), "{:#?}", found.violations);
    assert!(
        found.tally.admitted > 0 && found.tally.windows > 60 && found.tally.early > 0,
        "{:?}",
        found.tally
    );
}

#[test]
fn sketch_finds_every_seeded_bug() {
    let outcome = sketch::find_seeded(SMALL);
    assert_eq!(outcome.check(), Ok(()));
    assert_eq!(outcome.total(), 19);
}

#[test]
fn sketch_with_exact_counts_of_the_busiest_denies_fewer_quiet_keys_early() {
    let contest = sketch::contest(200, 500, 1);
    assert!(contest.flood * 2 < contest.sketch, "{contest:?}");
}
