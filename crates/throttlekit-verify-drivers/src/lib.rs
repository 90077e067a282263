//! The verifications that `cargo xtask verify` runs by name, at their full size and on real engines.
//!
//! * `table` lists them with their options, and `list` the guarantees with their seeded bugs.
//! * `runner` has the shared parts: options, the optimized build, progress, the `figure:` line and the
//!   verdict.
//! * `model` explores every state of small models, and `plots` draws the plots of the documents.
//! * Each other module runs one verification, or several that are alike, and prints its table.

mod abuse;
mod admission;
mod budget;
mod budget_tree;
mod budget_use;
mod exhaustion;
mod failover;
mod fair_regions;
mod fuzz;
mod inference;
mod invariants;
mod isolation;
mod key_capacity;
mod label_row;
mod label_truth;
mod learn;
mod lease_scale;
mod lease_sim;
mod leasing_nodes;
mod list;
mod metering;
mod model;
mod outbound;
mod picture;
mod plots;
mod price;
mod reload;
mod rolling_upgrade;
mod runner;
mod serving;
mod sketch;
mod slots;
mod stores;
mod table;
mod turn_order;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

pub use list::print as print_list;
pub use model::run as model;
pub use plots::run as plots;
pub use runner::{StartServices, figure_of};
use table::ALL;

/// Runs the verification of this name.
pub fn verify(name: &str, args: &[&str], start: StartServices) -> Result<()> {
    let mut known = ALL.iter().chain(&model::ALL);
    let named = known.find(|known| known.name == name);
    named.with_context(|| format!("unknown verification {name}\n{}", usage()))?.run(args, start)
}

/// Runs every verification at its full size. Lists those that failed at the end.
pub fn verify_all(start: StartServices) -> Result<()> {
    let mut failed = Vec::new();
    for verification in &ALL {
        println!("── {}", verification.name);
        if let Err(error) = verification.run(&[], start) {
            eprintln!("{error:#}");
            failed.push(verification.name);
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Returns the names of all verifications.
pub fn verification_names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|one| one.name)
}

/// Returns the usage of every verification.
pub fn usage() -> String {
    let each = ALL.iter().map(|one| {
        let takes = runner::usage(one.takes);
        format!("\n  verify {} {takes}\n{:27}{}", one.name, "", one.about)
    });
    format!("usage: cargo xtask verify NAME|all|--list\n{}", each.collect::<String>())
}

/// Returns the root of the repository.
fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
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
