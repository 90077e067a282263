//! The workspaces that no ordinary build touches: a change to a crate they use makes their locks stale without a word.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

const OUTSIDE: [&str; 5] = ["benches/inproc", "benches/server", "benches/stores", "fuzz", "tools/protogen"];

/// Fails if one of them would not build as it is locked.
pub(crate) fn check() -> Result<()> {
    for place in OUTSIDE {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(place).join("Cargo.toml");
        let mut command = Command::new("cargo");
        command.args(["update", "--workspace", "--locked", "--quiet", "--manifest-path"]).arg(&manifest);
        let status = command.status().context("cargo did not start")?;
        ensure!(
            status.success(),
            "{place}/Cargo.lock is stale; run\n  cargo update --workspace --manifest-path {place}/Cargo.toml"
        );
    }
    Ok(())
}
