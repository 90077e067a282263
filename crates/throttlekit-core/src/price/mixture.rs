//! Summary of the observed requests as few kinds.

use alloc::vec::Vec;

use super::{KINDS_MAX, RequestKind};

/// Bits of a number that are dropped at first when there are too many kinds: sixteen steps to a doubling are left.
const COARSE: u32 = 48;
/// All of a number but its sign, which is always the same. From here on everything is one kind.
const ALL: u32 = 63;

/// Groups the requests, each of weight 1, into at most [`KINDS_MAX`] kinds.
///
/// Equal requests are one kind. If that is not enough, requests are alike when the leading bits of their numbers are,
/// in coarser and coarser steps; a kind is then the mean of its requests. One pass sorts what the last one left.
pub(super) fn mixture(asks: impl Iterator<Item = RequestKind>) -> Vec<RequestKind> {
    let mut kinds: Vec<RequestKind> = asks.collect();
    merge(&mut kinds, 0);
    for dropped in COARSE..=ALL {
        if kinds.len() <= KINDS_MAX {
            break;
        }
        merge(&mut kinds, dropped);
    }
    kinds
}

fn merge(kinds: &mut Vec<RequestKind>, dropped: u32) {
    // The bits of numbers from zero up are in the order of the numbers.
    let place = |kind: &RequestKind| [kind.cost, kind.value, kind.hold].map(|n| n.to_bits() >> dropped);
    kinds.sort_unstable_by_key(place);
    kinds.dedup_by(|next, kept| {
        let alike = place(next) == place(kept);
        if alike {
            *kept = mean(kept, next);
        }
        alike
    });
}

fn mean(a: &RequestKind, b: &RequestKind) -> RequestKind {
    let weight = a.weight + b.weight;
    // Exact where both are the same, which keeps equal requests equal.
    let between = |a: f64, b_: f64| a + (b_ - a) * (b.weight / weight);
    RequestKind {
        weight,
        value: between(a.value, b.value),
        cost: between(a.cost, b.cost),
        hold: between(a.hold, b.hold),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(value: f64, cost: f64, hold: f64) -> RequestKind {
        RequestKind { weight: 1.0, value, cost, hold }
    }

    #[test]
    fn equal_requests_are_one_kind_with_unchanged_numbers() {
        let kinds =
            mixture((0..999).map(|i| if i % 3 == 0 { ask(0.1, 7.0, 0.3) } else { ask(5.0, 70.0, 0.0) }));
        assert_eq!(
            kinds,
            [
                RequestKind { weight: 333.0, ..ask(0.1, 7.0, 0.3) },
                RequestKind { weight: 666.0, ..ask(5.0, 70.0, 0.0) }
            ]
        );
    }

    #[test]
    fn requests_are_grouped_into_at_most_the_maximum_kinds_and_none_is_lost() {
        let spread = |i: u32| libm::exp2(f64::from(i * 37 % 2_000) - 1_000.0);
        let near: Vec<RequestKind> = (0..5_000).map(|i| ask(f64::from(i), 1.0, 0.0)).collect();
        let far: Vec<RequestKind> =
            (0..5_000).map(|i| ask(spread(i), spread(i + 1), spread(i + 2))).collect();
        for asks in [near, far] {
            let kinds = mixture(asks.into_iter());
            assert!(kinds.len() <= KINDS_MAX && kinds.len() > 1);
            assert_eq!(kinds.iter().map(|kind| kind.weight).sum::<f64>(), 5_000.0);
        }
    }
}
