//! The verifications by name, and the parts that all of them share: options, the optimized build, progress, seeded bugs, the
//! `figure:` line and the verdict.

pub(crate) mod list;
mod options;
mod run;

use anyhow::{Context, Result, ensure};
use throttlekit_conformance::fair;

pub(crate) use options::Options;
pub(crate) use run::{Run, in_threads, rounded, search};

use crate::prove;
use crate::{
    prove_abuse, prove_admission, prove_budget, prove_budget_use, prove_exhaustion, prove_failover,
    prove_fair_regions, prove_fleet, prove_fuzz, prove_inference, prove_isolation, prove_key_capacity,
    prove_label_truth, prove_learn, prove_lease_model, prove_lease_scale, prove_lease_sim, prove_metering,
    prove_price, prove_reload_room, prove_sketch, prove_slots, prove_stores,
};

/// A command that verifies something, given its options.
type Verify = fn(&[&str]) -> Result<()>;

/// Every verification by its name.
const ALL: [(&str, Verify); 28] = [
    ("rate", prove::run),
    ("fair", |args| prove::prove_all("fair", &fair::laws(), args)),
    ("abuse", prove_abuse::run),
    ("envoy-hostile", prove_abuse::run_envoy),
    ("fair-service", prove_abuse::run_fair),
    ("budget", prove_budget::run),
    ("budget-use", prove_budget_use::run),
    ("key-capacity", prove_key_capacity::run),
    ("learn", prove_learn::run),
    ("metering", prove_metering::run),
    ("sketch", prove_sketch::run),
    ("bid-price", prove_price::run),
    ("admission", prove_admission::run),
    ("inference", prove_inference::run),
    ("slots", prove_slots::run),
    ("stores", prove_stores::run),
    ("reload-room", prove_reload_room::run),
    ("fair-regions", prove_fair_regions::run),
    ("fuzz", prove_fuzz::run),
    ("wire-fuzz", prove_abuse::run_wire_fuzz),
    ("isolated-callers", prove_isolation::run),
    ("fleet", prove_fleet::run),
    ("failover", prove_failover::run),
    ("label-truth", prove_label_truth::run),
    ("exhaustion", prove_exhaustion::run),
    ("lease-sim", prove_lease_sim::run),
    ("lease-scale", prove_lease_scale::run),
    ("lease-model", prove_lease_model::run),
];

/// Runs the verification of this name.
pub(crate) fn one(name: &str, args: &[&str]) -> Result<()> {
    let known = || ALL.map(|(name, _)| name).join(", ");
    let (_, verify) = ALL
        .iter()
        .find(|(known, _)| *known == name)
        .with_context(|| format!("unknown verification {name:?}: expected one of {}", known()))?;
    verify(args)
}

/// Runs every verification at its full size. Names those that fail at the end.
pub(crate) fn all() -> Result<()> {
    let mut failed = Vec::new();
    for (name, verify) in ALL {
        println!("── {name}");
        if let Err(error) = verify(&[]) {
            eprintln!("{name}: {error:#}");
            failed.push(name);
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}
