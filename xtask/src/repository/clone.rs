//! A clone alone builds and passes its tests: nothing in the repository needs a file outside it.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::{root, succeed};

/// Clones what is committed into an empty folder and tests the library there.
pub(crate) fn check() -> Result<()> {
    let clone = folder();
    if clone.exists() {
        fs::remove_dir_all(&clone)?;
    }
    fs::create_dir_all(&clone)?;
    succeed(Command::new("git").args(["clone", "--quiet", "--local"]).arg(root()).arg(&clone))?;
    // Dependencies that were built before are reused.
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let mut test = Command::new("cargo");
    test.args(["nextest", "run", "--locked", "-p", "throttlekit-core", "-p", "throttlekit"]);
    test.env("CARGO_TARGET_DIR", target).current_dir(&clone);
    let result = succeed(&mut test).context("a clone of the repository does not pass by itself");
    fs::remove_dir_all(&clone)?;
    result
}

/// The same place each time, as build artifacts are kept by path, and another one for each working copy.
fn folder() -> PathBuf {
    let root = root();
    let name = root.file_name().unwrap_or(OsStr::new("throttlekit"));
    env::temp_dir().join("throttlekit-clones").join(name)
}
