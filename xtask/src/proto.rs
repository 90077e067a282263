//! The wire types: written from the `.proto` files, kept in the repository, checked for drift.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::repository::root;

/// Writes the wire types.
pub(crate) fn write() -> Result<()> {
    generate(&kept())?;
    println!("{} files in {}", files(&kept())?.len(), kept().display());
    Ok(())
}

/// Fails if the wire types on disk differ from the `.proto` files, or if there is a file that is not
/// generated.
pub(crate) fn check() -> Result<()> {
    let fresh = root().join("target/proto-check");
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    generate(&fresh)?;
    let (kept, fresh) = (files(&kept())?, files(&fresh)?);
    let drifted: BTreeSet<&String> =
        kept.keys().chain(fresh.keys()).filter(|&name| kept.get(name) != fresh.get(name)).collect();
    let remedy = "run `cargo xtask proto` and review the change, or delete a file that nobody writes";
    ensure!(drifted.is_empty(), "wire types have drifted: {drifted:?}; {remedy}");
    Ok(())
}

/// Runs the generator, which is not part of the workspace, so that no other build compiles its protobuf
/// compiler.
fn generate(out: &Path) -> Result<()> {
    let mut command = Command::new("cargo");
    command
        .args(["run", "--quiet", "--locked", "--manifest-path"])
        .arg(root().join("tools/protogen/Cargo.toml"));
    command.arg("--").arg(wire().join("proto")).arg(out);
    let status = command.status().context("cannot start the generator of wire types")?;
    ensure!(status.success(), "the generator of wire types failed");
    Ok(())
}

/// Returns the files of a directory by name.
fn files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    entries
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?))
        })
        .collect()
}

fn kept() -> PathBuf {
    wire().join("src/generated")
}

fn wire() -> PathBuf {
    root().join("crates/throttlekit-proto")
}
