//! `algebra`: `combine` is associative, commutative and idempotent, and `ALLOW_FULL` is its identity.

use std::time::Duration;

use throttlekit_core::{ALLOW_FULL, Decision, Retry, Timestamp, combine};

use super::{Check, Invariant, Trial, Violation, ensure};
use crate::Dice;

type Fold = fn(Decision, Decision) -> Decision;

pub(super) fn invariant() -> Invariant {
    let first_limit: Fold = |a, b| Decision { limit: a.limit, ..combine(a, b) };
    let adds_waits: Fold = |a, b| match (a.retry_after, b.retry_after) {
        (Retry::After(x), Retry::After(y)) => {
            Decision { retry_after: Retry::After(x.saturating_add(y)), ..combine(a, b) }
        }
        _ => combine(a, b),
    };
    let least_reset: Fold = |a, b| Decision { reset_at: a.reset_at.min(b.reset_at), ..combine(a, b) };
    let midpoint: Fold = |a, b| Decision { remaining: a.remaining.midpoint(b.remaining), ..combine(a, b) };
    Invariant {
        name: "algebra",
        holds: trial(combine),
        seeded: vec![
            ("first_limit", trial(first_limit)),
            ("adds_waits", trial(adds_waits)),
            ("least_reset", trial(least_reset)),
            ("midpoint_remaining", trial(midpoint)),
        ],
    }
}

fn trial(fold: Fold) -> Trial {
    Box::new(move |seed| {
        let mut dice = Dice::new(seed);
        let [a, b, c] = std::array::from_fn(|_| roll(&mut dice));
        check(fold, a, b, c).map_err(|counterexample| Violation { seed, counterexample })
    })
}

fn check(fold: Fold, a: Decision, b: Decision, c: Decision) -> Check {
    let told = |invariant: &str| format!("not {invariant} on {a:?}, {b:?}, {c:?}");
    ensure(fold(fold(a, b), c) == fold(a, fold(b, c)), || told("associative"))?;
    ensure(fold(a, b) == fold(b, a), || told("commutative"))?;
    ensure(fold(a, a) == a, || told("idempotent"))?;
    ensure(fold(a, ALLOW_FULL) == a && fold(ALLOW_FULL, a) == a, || told("neutral with ALLOW_FULL"))
}

fn roll(dice: &mut Dice) -> Decision {
    let wait = Duration::from_nanos(dice.any_size(u64::MAX));
    Decision {
        allowed: dice.once_in(2),
        limit: dice.any_size(u64::MAX),
        remaining: dice.any_size(u64::MAX),
        reset_at: Timestamp::from_nanos(dice.any_size(u64::MAX)),
        retry_after: dice.pick(&[Retry::Now, Retry::after(wait), Retry::OnRelease, Retry::Never]),
    }
}
