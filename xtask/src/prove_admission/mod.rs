//! Unified admission: one call over all axes, whatever mix of stores they are on.

mod algebra;
mod drill;
mod engine;
mod fused;
mod gateway;
mod matrix;
mod price;

use anyhow::Result;

use crate::parts::{self, Part, Prove};

const PARTS: [(&str, Prove); 6] = [
    ("matrix", matrix::run),
    ("fused", fused::run),
    ("algebra", algebra::run),
    ("price", price::run),
    ("drill", drill::run),
    ("gateway", gateway::run),
];

/// Runs every part, or those that are named.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    parts::run("admission", &PARTS, args)
}
