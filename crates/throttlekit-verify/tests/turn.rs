//! `turn-order` over thousands of schedules, and every seeded bug found.

use throttlekit_verify::turn::{Part, Plain, invariants, play};

const SCHEDULES: u64 = 2_000;

#[test]
fn turn_order_holds() {
    for invariant in invariants() {
        invariant.check(0..SCHEDULES).unwrap_or_else(|violation| panic!("{}: {violation}", invariant.name));
    }
}

#[test]
fn turn_order_every_seeded_bug_is_found() {
    for invariant in invariants() {
        let outcome = invariant.find_seeded(SCHEDULES);
        assert_eq!(outcome.check(), Ok(()), "{}", invariant.name);
        assert!(outcome.total() >= 3, "{}", invariant.name);
    }
}

/// A control: the check that finds the bugs of a list must pass the list without one.
#[test]
fn turn_order_holds_for_a_plain_list() {
    for part in [Part::Order, Part::Starvation, Part::HandOver, Part::Stalled, Part::OneRequest] {
        for seed in 0..SCHEDULES {
            play(seed, part, &|| Plain::new(None))
                .unwrap_or_else(|story| panic!("{part:?}, {seed}: {story}"));
        }
    }
}
