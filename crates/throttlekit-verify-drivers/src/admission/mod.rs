//! Unified admission: one call over all axes, in any mix of stores.

mod algebra;
mod drill;
mod engine;
mod fused;
mod gateway;
mod matrix;
mod price;

use anyhow::Result;
use serde_json::Value;

use crate::runner::parts::{self, Part, Setup, Verify};
use crate::runner::{Options, Run};

const PARTS: [(&str, Verify); 6] = [
    ("matrix", matrix::run),
    ("fused", fused::run),
    ("algebra", algebra::run),
    ("price", price::run),
    ("drill", drill::run),
    ("gateway", gateway::run),
];

/// Runs every part, or the named ones.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    parts::run(&PARTS, options, run)
}
