//! Invariant `learned-ceiling`: no response raises a limit above the ceiling or stops calls for long; and the check can fail.

use throttlekit_verify::outbound::{CeilingBug, examine, find_seeded};

#[test]
fn learned_ceiling_with_any_responses() {
    let report = examine(0..20_000).unwrap_or_else(|violation| panic!("{violation}"));
    println!("{report:?}");
    assert_eq!(report.missing(), Vec::<&str>::new());
    assert!(report.delayed > 10_000 && report.probes > 100 && report.at_ceiling > 10_000, "{report:?}");
}

/// A control: the seeded composition passes without a bug.
#[test]
fn learned_ceiling_in_the_composition_that_bugs_are_seeded_in() {
    assert_eq!(find_seeded(None, 5_000), None);
}

#[test]
fn learned_ceiling_every_seeded_bug_is_found() {
    for &bug in CeilingBug::ALL {
        let found = find_seeded(Some(bug), 20_000);
        println!("{found:?}  {}", bug.name());
        assert!(found.is_some(), "blind to {bug:?}");
    }
}
