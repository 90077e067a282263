//! Inferred ceilings: near the best where latencies hardly vary, and robust to variance where they do.

pub(crate) mod steady;
mod tails;

use anyhow::Result;
use serde_json::Value;

use crate::runner::parts::{self, Part, Setup, Verify};
use crate::runner::{Options, Run};

const PARTS: [(&str, Verify); 2] = [("steady", steady::run), ("tails", tails::run)];

/// Runs every part, or the named ones.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    parts::run(&PARTS, options, run)
}
