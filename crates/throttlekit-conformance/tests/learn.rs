//! Law `learn`, at a size for every day; `cargo xtask prove learn` takes more of everything.

use throttlekit_conformance::learn::{self, Size};

const SMALL: Size = Size { seeds: 2, horizons: &[100, 1_000, 10_000], windows: 10_000, observations: 5_000 };

#[test]
fn learn_regret_stays_below_its_envelope_and_batches_within_their_bounds() {
    let found = learn::examine(SMALL);
    assert!(found.violations.is_empty(), "{:#?}", found.violations);
}

#[test]
fn learn_finds_every_planted_bug() {
    let (found, missed) = learn::examine_planted(Size { seeds: 1, windows: 2_000, ..SMALL });
    assert!(missed.is_empty(), "blind to {missed:?}");
    assert_eq!(found.len(), learn::SIZER_BUGS.len() + learn::PREDICTOR_BUGS.len());
}
