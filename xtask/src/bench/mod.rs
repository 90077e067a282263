//! `cargo xtask bench`: the benchmarks, which live outside the workspace so that no ordinary build pays for them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

const USAGE: &str =
    "usage: cargo xtask bench inproc [--quick] [--rounds N] [--only PART] [--require-callgrind]";

/// Runs the suite that is named first, with the rest of the arguments.
pub(crate) fn run(args: &[String]) -> Result<()> {
    match args {
        [suite, options @ ..] if suite == "inproc" => inproc(options),
        _ => bail!(USAGE),
    }
}

/// In-process checks beside the peers; fails when a bar is missed.
fn inproc(options: &[String]) -> Result<()> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--quiet", "--release", "--locked", "--manifest-path"]);
    command.arg(root().join("benches/inproc/Cargo.toml"));
    if env::var_os("CARGO_TARGET_DIR").is_none() {
        command.arg("--target-dir").arg(root().join("target/benches"));
    }
    let status = command.arg("--").args(options).status().context("cargo did not start")?;
    ensure!(status.success(), "the in-process benchmarks ended with {status}");
    Ok(())
}

fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map_or_else(|| xtask.to_path_buf(), Path::to_path_buf)
}
