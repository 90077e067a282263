//! A clone alone builds and passes its tests: nothing in the repository needs a file outside it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::{root, succeed, target};

/// Clones what is committed into an empty folder, and builds and tests the library there.
pub(crate) fn check() -> Result<()> {
    let clone = folder();
    if clone.exists() {
        fs::remove_dir_all(&clone)?;
    }
    fs::create_dir_all(&clone)?;
    succeed(Command::new("git").args(["clone", "--quiet"]).arg(root()).arg(&clone))?;
    let mut test = Command::new("cargo");
    test.args(["nextest", "run", "--locked", "-p", "throttlekit-core", "-p", "throttlekit"]);
    for name in ours() {
        test.env_remove(name);
    }
    // Dependencies need not be compiled again; crates of the clone are others than those here, as their paths differ.
    test.env("CARGO_TARGET_DIR", target());
    let result =
        succeed(test.current_dir(&clone)).context("a clone of the repository does not pass by itself");
    fs::remove_dir_all(&clone)?;
    result
}

/// Variables that would lead out of the clone, to engines.
fn ours() -> impl Iterator<Item = OsString> {
    let names = env::vars_os().map(|(name, _)| name);
    names.filter(|name| name.to_string_lossy().starts_with("THROTTLEKIT_"))
}

/// Another folder for each working copy.
fn folder() -> PathBuf {
    let root = root();
    let name = root.file_name().unwrap_or(OsStr::new("throttlekit"));
    env::temp_dir().join("throttlekit-clones").join(name)
}
