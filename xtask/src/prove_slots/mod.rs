//! Slots: ceilings that are inferred, slots that are held under a lease, one ceiling for a fleet.

mod fleet;
mod held;
pub(crate) mod inference;
mod models;

use anyhow::Result;

pub(crate) use crate::parts::Part;
use crate::parts::{self, Prove};

/// Returns the names of the bugs seeded into cycles of slots.
pub(crate) fn cycle_bugs() -> Vec<&'static str> {
    crate::verify::list::names(held::cycles::CycleBug::ALL)
}

const PARTS: [(&str, Prove); 4] =
    [("inference", inference::run), ("held", held::run), ("models", models::run), ("fleet", fleet::run)];

/// Runs every part, or those that are named.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    parts::run("slots", &PARTS, args)
}
