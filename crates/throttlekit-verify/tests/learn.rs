//! Guarantee `learn`, at a small size; `cargo xtask verify learn` runs more of everything.

use throttlekit_verify::learn::{self, Size};

const SMALL: Size = Size { seeds: 2, horizons: &[100, 1_000, 10_000], windows: 10_000, observations: 5_000 };

#[test]
fn learn_regret_stays_below_its_envelope_and_batches_within_their_bounds() {
    let found = learn::examine(SMALL);
    assert!(found.violations.is_empty(), "{:#?}", found.violations);
}

#[test]
fn learn_finds_every_seeded_bug() {
    let outcome = learn::find_seeded(Size { seeds: 1, windows: 2_000, ..SMALL });
    assert_eq!(outcome.check(), Ok(()));
    assert_eq!(outcome.total(), 12);
}

/// The same for the real learner and the seeded ones, so that no bug is found only because of too few
/// samples.
const RESERVATIONS: Size = Size { seeds: 1, windows: 2_000, ..SMALL };

#[test]
fn learn_reservations_stay_below_their_envelope_and_hints_within_their_thresholds() {
    let found = learn::reserve::examine(RESERVATIONS);
    assert!(found.violations.is_empty(), "{:#?}", found.violations);
}

#[test]
fn learn_finds_every_seeded_reservation() {
    let outcome = learn::reserve::find_seeded(RESERVATIONS);
    assert_eq!(outcome.check(), Ok(()));
    assert_eq!(outcome.total(), 14);
}
