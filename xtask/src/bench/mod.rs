//! Measurements.

use anyhow::Result;

/// Runs the measurement that the arguments name.
pub(crate) fn run(_args: &[String]) -> Result<()> {
    println!("not built here");
    Ok(())
}
