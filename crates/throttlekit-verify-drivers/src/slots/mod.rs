//! Slots: inferred ceilings, slots held under a lease, one ceiling shared by several nodes.

mod divided;
mod held;
mod models;

use anyhow::Result;
use serde_json::Value;

use crate::inference::steady;
use crate::runner::parts::{self, Part, Setup, Verify};
use crate::runner::{Options, Run, names};

/// Returns the names of the bugs seeded into cycles of slots.
pub(crate) fn cycle_bugs() -> Vec<&'static str> {
    names(held::cycles::CycleBug::ALL)
}

const PARTS: [(&str, Verify); 4] =
    [("inference", steady::run), ("held", held::run), ("models", models::run), ("fleet", divided::run)];

/// Runs every part, or the named ones.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    parts::run(&PARTS, options, run)
}
