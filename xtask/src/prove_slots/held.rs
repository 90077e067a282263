use anyhow::Result;

use super::Part;

/// Nothing yet.
pub(super) fn run(_small: bool) -> Result<Part> {
    Ok(Part::default())
}
