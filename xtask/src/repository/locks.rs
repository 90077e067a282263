//! The workspaces that no ordinary build touches: a change to a crate they use makes their locks stale without a word.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::root;

const OUTSIDE: [&str; 8] = [
    "benches/inproc",
    "benches/outbound",
    "benches/peers",
    "benches/server",
    "benches/stores",
    "clients/python",
    "fuzz",
    "tools/protogen",
];

/// Fails if one of them would not build as it is locked.
pub(crate) fn check() -> Result<()> {
    for place in OUTSIDE {
        let manifest = root().join(place).join("Cargo.toml");
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
