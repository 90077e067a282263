//! Guards compared with a simple reference, and the bugs that this finds.

use throttlekit_verify::guard::{Naive, Shipped, cancel, examine, find_seeded, keyed};

const SCENARIOS: u64 = 1_000;

#[test]
fn slots_in_process_match_the_reference_implementation() {
    assert_eq!(examine(SCENARIOS, Shipped::new), Vec::<String>::new());
}

#[test]
fn slots_in_process_every_seeded_bug_is_found_and_the_reference_passes() {
    assert_eq!(examine(SCENARIOS, |setup| Naive::new(setup, None)), Vec::<String>::new());
    let outcome = find_seeded(SCENARIOS);
    assert_eq!((outcome.total(), outcome.check()), (13, Ok(())));
}

#[test]
fn slots_keyed_no_key_has_more_than_its_ceiling() {
    assert_eq!(keyed::examine(SCENARIOS, keyed::shipped), Vec::<String>::new());
}

#[test]
fn slots_keyed_every_seeded_bug_is_found() {
    let outcome = keyed::find_seeded(SCENARIOS);
    assert_eq!((outcome.total(), outcome.check()), (5, Ok(())));
}

#[test]
fn slots_leak_nothing_wherever_futures_are_dropped() {
    let drops = cancel::drop_everywhere(10_000, 1);
    assert_eq!((drops.cycles, drops.leaked), (10_000, 0), "{drops:?}");
    assert!(drops.dropped_after.iter().all(|&dropped| dropped > 100), "{drops:?}");
    assert!(drops.panicked > 500 && drops.done > 500, "{drops:?}");
}

#[test]
fn slots_leak_nothing_finds_work_that_leaks() {
    assert!(cancel::drop_everywhere_with(200, 1, cancel::leaky).leaked > 0);
}
