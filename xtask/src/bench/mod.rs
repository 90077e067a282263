//! `cargo xtask bench`: the benchmarks, which live outside the workspace so that no ordinary build pays for them.

mod both;

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::repository::root;
use crate::services;

const USAGE: &str = "\
usage: cargo xtask bench inproc [--quick] [--rounds N] [--only PART] [--require-callgrind]
       cargo xtask bench fair [--quick] [--rounds N]
       cargo xtask bench redis|postgres [--rounds N]
       cargo xtask bench server [--quick] [--rounds N]
       cargo xtask bench lease|admission|budget|sketch|slots [--quick] [--rounds N] [--only PART] [--require-callgrind]";

/// Runs the suite that is named first, with the rest of the arguments.
pub(crate) fn run(args: &[String]) -> Result<()> {
    match args {
        // In-process checks beside the peers.
        [suite, options @ ..] if suite == "inproc" => judge(package("inproc", &[], options)),
        // Debits, sketches, slots and tenants that share, likewise.
        [suite, ..] if ["budget", "sketch", "fair", "slots"].contains(&suite.as_str()) => {
            judge(package("inproc", &[], args))
        }
        // Shared stores beside what their engines do bare.
        [suite, ..] if suite == "redis" || suite == "postgres" => {
            let engines = services::up_only(&[suite])?;
            judge(package("stores", &engines, args))
        }
        // The service beside a bare echo and beside its own store.
        [suite, ..] if suite == "server" => {
            let engines = services::up_only(&["redis"])?;
            judge(package("server", &engines, args))
        }
        // Both, about leases, and about admission.
        [suite, options @ ..] if suite == "lease" || suite == "admission" => both::run(suite, options),
        _ => bail!(USAGE),
    }
}

/// Runs a package of benchmarks, which fails when a bar is missed.
fn judge(mut package: Command) -> Result<()> {
    let status = package.status().context("cargo did not start")?;
    ensure!(status.success(), "the benchmarks ended with {status}");
    Ok(())
}

/// One package of benchmarks, ready to run.
fn package(name: &str, env: &[(&str, String)], options: &[String]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--quiet", "--release", "--locked", "--manifest-path"]);
    command.arg(root().join("benches").join(name).join("Cargo.toml"));
    command.envs(env.iter().map(|(name, value)| (name, value)));
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        command.arg("--target-dir").arg(root().join("target/benches"));
    }
    command.arg("--").args(options);
    command
}
