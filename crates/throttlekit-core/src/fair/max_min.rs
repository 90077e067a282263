//! Dividing once among demands that are known.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::Weight;

/// Divides `limit` units among members by weighted max-min: no member gets more than its demand, and none can get more
/// without taking from one that has less for its weight.
///
/// Exact: the water level is a fraction `L/W` of whole numbers and is never rounded itself. Each member that is not
/// satisfied gets the floor of its part; the fewer than *n* units that remain go one each to those whose part was cut
/// by most, the earlier of equals first. Handed out is the lesser of `limit` and all demands.
///
/// ```
/// use throttlekit_core::fair::{Weight, weighted_max_min};
///
/// let [four, one] = [Weight::new(4)?, Weight::ONE];
/// assert_eq!(weighted_max_min(&[100; 4], &[four, one, one, one], 100), [57, 15, 14, 14]);
/// assert_eq!(weighted_max_min(&[10; 4], &[four, one, one, one], 100), [10; 4]);
/// # Ok::<(), throttlekit_core::fair::WeightError>(())
/// ```
///
/// # Panics
///
/// If there are not as many weights as demands.
pub fn weighted_max_min(demands: &[u64], weights: &[Weight], limit: u64) -> Vec<u64> {
    assert_eq!(demands.len(), weights.len(), "each demand has a weight");
    let weight = |i: usize| u128::from(weights[i].get());
    let mut order: Vec<usize> = (0..demands.len()).collect();
    // By the level at which each is satisfied.
    order.sort_by(|&a, &b| {
        (u128::from(demands[a]) * weight(b)).cmp(&(u128::from(demands[b]) * weight(a))).then(a.cmp(&b))
    });

    let mut shares = demands.to_vec();
    let (mut left, mut above) = (u128::from(limit), (0..demands.len()).map(weight).sum::<u128>());
    let satisfied = order.iter().take_while(|&&i| {
        let fits = u128::from(demands[i]) * above <= weight(i) * left;
        if fits {
            left -= u128::from(demands[i]);
            above -= weight(i);
        }
        fits
    });
    let mut rest = order.split_at(satisfied.count()).1.to_vec();

    for &i in &rest {
        shares[i] = (weight(i) * left / above) as u64;
    }
    let spare = left.saturating_sub(rest.iter().map(|&i| u128::from(shares[i])).sum());
    rest.sort_by_key(|&i| (Reverse(weight(i) * left % above), i));
    // What is not satisfied lacks a unit at least, so one more is never beyond a demand.
    rest.iter().take(if rest.is_empty() { 0 } else { spare as usize }).for_each(|&i| shares[i] += 1);
    shares
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn weights(of: &[u64]) -> Vec<Weight> {
        of.iter().map(|&w| Weight::new(w).unwrap()).collect()
    }

    #[test]
    fn the_published_example() {
        assert_eq!(weighted_max_min(&[100; 4], &weights(&[4, 1, 1, 1]), 100), [57, 15, 14, 14]);
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!(weighted_max_min(&[], &[], 5), Vec::<u64>::new());
        assert_eq!(weighted_max_min(&[0, 7], &weights(&[1, 1]), 0), [0, 0]);
        assert_eq!(weighted_max_min(&[u64::MAX; 2], &weights(&[1, 1]), u64::MAX), [1 << 63, (1 << 63) - 1]);
        let most = super::super::WEIGHT_MAX;
        assert_eq!(weighted_max_min(&[u64::MAX; 2], &weights(&[most, most]), 3), [2, 1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]
        #[test]
        fn all_is_handed_out_none_beyond_demand_and_no_pair_can_be_evened_out(
            members in prop::collection::vec((0_u64..200, 1_u64..1_000), 1..8), limit in 0_u64..600
        ) {
            let (demands, of): (Vec<_>, Vec<_>) = members.into_iter().unzip();
            let shares = weighted_max_min(&demands, &weights(&of), limit);
            prop_assert_eq!(shares.iter().sum::<u64>(), limit.min(demands.iter().sum()));
            for i in 0..shares.len() {
                prop_assert!(shares[i] <= demands[i]);
                // A member that lacks something has, except for one unit, no less for its weight than any other.
                for j in 0..shares.len() {
                    let lacks = shares[i] < demands[i];
                    prop_assert!(!lacks || shares[j] == 0 || (shares[j] - 1) * of[i] <= (shares[i] + 1) * of[j]);
                    let uneven = (shares[j].saturating_sub(1)) * of[i] > (shares[i] + 1) * of[j];
                    prop_assert!(!(lacks && uneven), "{demands:?} {of:?} {limit}: {shares:?}");
                }
            }
        }

        #[test]
        fn each_share_is_within_a_unit_of_the_fluid_one(
            members in prop::collection::vec((0_u64..200, 1_u64..1_000), 1..8), limit in 0_u64..600
        ) {
            let (demands, of): (Vec<_>, Vec<_>) = members.into_iter().unzip();
            let shares = weighted_max_min(&demands, &weights(&of), limit);
            // The fluid level, by raising it: satisfied are those below it, found by repeating until none is added.
            let mut full = vec![false; demands.len()];
            let (left, above) = loop {
                let left = limit.saturating_sub(demands.iter().zip(&full).filter(|(_, f)| **f).map(|(d, _)| d).sum());
                let above: u64 = of.iter().zip(&full).filter(|(_, f)| !**f).map(|(w, _)| w).sum();
                let next: Vec<bool> =
                    (0..full.len()).map(|i| full[i] || demands[i] * above <= of[i] * left).collect();
                if next == full { break (left, above) }
                full = next;
            };
            for i in 0..shares.len() {
                if full[i] {
                    prop_assert_eq!(shares[i], demands[i]);
                } else {
                    let (fluid, got) = (of[i] * left, shares[i] * above);
                    prop_assert!(got < fluid + above && fluid < got + above, "{demands:?} {of:?} {limit}: {shares:?}");
                }
            }
        }
    }
}
