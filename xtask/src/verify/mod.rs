//! The verifications by name.

pub(crate) mod list;
mod table;

use anyhow::{Context, Result, ensure};
use table::ALL;

use crate::{model, runner};

/// Runs the verification of this name.
pub(crate) fn one(name: &str, args: &[&str]) -> Result<()> {
    let mut known = ALL.iter().chain(&model::ALL);
    let named = known.find(|known| known.name == name);
    named.with_context(|| format!("unknown verification {name}\n{}", usage()))?.run(args)
}

/// Runs every verification at its full size. Names those that fail at the end.
pub(crate) fn all() -> Result<()> {
    let mut failed = Vec::new();
    for verification in &ALL {
        println!("── {}", verification.name);
        if let Err(error) = verification.run(&[]) {
            eprintln!("{error:#}");
            failed.push(verification.name);
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Returns the usage of every verification.
pub(crate) fn usage() -> String {
    let each = ALL.iter().map(|one| {
        let takes = runner::usage(one.takes);
        format!("\n  verify {} {takes}\n{:27}{}", one.name, "", one.about)
    });
    format!("usage: cargo xtask verify NAME|all|--list\n{}", each.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ALL;

    #[test]
    fn every_verification_has_a_name_of_its_own() {
        let names: BTreeSet<_> = ALL.iter().map(|one| one.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
