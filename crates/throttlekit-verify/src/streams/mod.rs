//! `budget-streams`: for any reservations and any fate of streams, no window is charged more than its budget
//! and what the last chunk may add, and nothing is charged that was not produced.
//!
//! Scenarios of production code: gateways that reserve well, badly and absurdly over one store, streams that
//! debit, fall silent, settle and vanish, windows that end, replies that are lost and returns that arrive
//! twice. After each step, for each key,
//!
//! > charged = produced + reserved + stranded, and charged ≤ budget + g − 1.
//!
//! Stranded are the units lent by a lost reply, until its window ends.

mod scenario;
mod wire;

pub use scenario::check_scenario;
pub use wire::{StreamBug, Wire};

use throttlekit_conformance::bugs::Found;

/// Returns the first seed of these at which the scenario breaks the invariant, with the details; with a bug,
/// if there is one.
pub fn examine(seeds: std::ops::Range<u64>, bug: Option<StreamBug>) -> Result<(), String> {
    seeds.into_iter().try_for_each(|seed| {
        check_scenario(seed, bug).map_err(|counterexample| format!("seed {seed}: {counterexample}"))
    })
}

/// Searches for the seeded bugs in the first `scenarios` scenarios.
pub fn find_seeded(scenarios: u64) -> Found {
    Found::all(|bug: StreamBug| examine(0..scenarios, Some(bug)).is_err())
}
