//! Shows why nodes must coordinate: the cost of every fixed split of a limit.
//!
//! Each of `N` nodes admits up to a number of its own and never requests more. If all are busy, they admit
//! `Δ` too much; if one is busy and the others idle, they admit `U` too little. For every choice of numbers
//! `Δ + N·U ≥ (N−1)·L`, and an even split reaches that.

use throttlekit_core::lease::{LocalLease, PlainWord, Spend};
use throttlekit_core::{Cost, Timestamp};

/// The result over every split of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splits {
    /// The number of splits.
    pub tried: u64,
    /// The minimum of `Δ + N·U`.
    pub least: Cost,
    /// The minimum over the splits that give every node the same.
    pub least_even: Cost,
}

/// Tries every split of `limit` among `nodes`; each node may hold from nothing up to all of it.
pub fn try_splits(nodes: usize, limit: Cost) -> Splits {
    let tried = (limit + 1).pow(nodes as u32);
    let split = |number: u64| -> Vec<Cost> {
        (0..nodes as u32).map(|node| number / (limit + 1).pow(node) % (limit + 1)).collect()
    };
    let costs = |split: &Vec<Cost>| over(split, limit) + nodes as u64 * under(split, limit);
    let even = |split: &Vec<Cost>| split.iter().all(|held| *held == split[0]);
    Splits {
        tried,
        least: (0..tried).map(split).map(|split| costs(&split)).min().expect("there is a split"),
        least_even: (0..tried)
            .map(split)
            .filter(even)
            .map(|split| costs(&split))
            .min()
            .expect("there is an even one"),
    }
}

/// Δ: the units admitted above the limit when all of it is requested at every node.
fn over(split: &[Cost], limit: Cost) -> Cost {
    let admitted: Cost = split.iter().map(|held| admitted(*held, limit)).sum();
    admitted.saturating_sub(limit)
}

/// U: the units missing when the node with the smallest part is requested for all of it, and no other for
/// any.
fn under(split: &[Cost], limit: Cost) -> Cost {
    split.iter().map(|held| limit - admitted(*held, limit)).max().expect("there is a node")
}

/// Returns how many of `asks` requests a node that holds `held` units admits.
fn admitted(held: Cost, asks: Cost) -> Cost {
    let local_lease = LocalLease::<PlainWord>::new();
    local_lease.fill(held, Timestamp::MAX, false);
    let spent = |_: &u64| matches!(local_lease.spend(1, || Timestamp::EPOCH), Spend::Spent { .. });
    (0..asks).filter(spent).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_fixed_split_is_both_exact_and_free_of_waste() {
        for nodes in [2, 3, 4] {
            for limit in [4, 6, 8] {
                let bound = (nodes as u64 - 1) * limit;
                let found = try_splits(nodes, limit);
                let tried = (limit + 1).pow(nodes as u32);
                assert_eq!(
                    found,
                    Splits { tried, least: bound, least_even: bound },
                    "{nodes} nodes, limit {limit}"
                );
            }
        }
    }
}
