//! Inferred ceilings: near the best where latencies hardly vary, and no victim of variance where they do.

mod tails;

use anyhow::Result;

use crate::parts::{self, Prove};
use crate::prove_slots::inference;

const PARTS: [(&str, Prove); 2] = [("steady", inference::run), ("tails", tails::run)];

/// Runs every part, or those that are named.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    parts::run("inference", &PARTS, args)
}
