//! The four invariants of `combine`, and responses over several limits and axes that are its result.

use anyhow::{Context, Result};
use serde_json::json;
use throttlekit_conformance::bugs::Found;
use throttlekit_conformance::invariants;

use super::{Part, Setup};
use throttlekit_verify::admission::{OrderBug, check_order};

/// The number of cases of the invariants, each of which is checked for all four, and of limits in random
/// orders.
const FULL: (u64, u64) = (1_000_000, 100_000);
const SMALL: (u64, u64) = (10_000, 10_000);
const SEEDED_CASES_MAX: u64 = 10_000;

pub(super) fn run(setup: Setup) -> Result<Part> {
    let (cases, orders) = if setup.small { SMALL } else { FULL };
    let invariant = invariants::named("algebra").context("there is no invariant called algebra")?;
    let mut part = Part::default();
    let broken = invariant.check(0..cases).err();
    part.broken.extend(broken.map(|violation| format!("algebra: {violation}")));
    let broken = (0..orders).find_map(|seed| check_order(None, seed).err());
    part.broken.extend(broken.map(|counterexample| format!("algebra: {counterexample}")));
    let orders_found =
        Found::all(|bug: OrderBug| (0..SEEDED_CASES_MAX).any(|seed| check_order(Some(bug), seed).is_err()));
    part.seeded = invariant.find_seeded(SEEDED_CASES_MAX).merge(orders_found);
    println!("associative, commutative, idempotent, neutral: {cases} cases each");
    println!("two to six limits of two axes, in two orders: {orders} cases");
    part.figure = json!({ "cases_each": cases, "orders": orders, "violations": part.broken.len() });
    Ok(part)
}
