//! Checks of the repository itself: what is published, what is linked, and that nothing outside it is needed.

pub(crate) mod api;
pub(crate) mod clone;
pub(crate) mod links;
pub(crate) mod locks;
pub(crate) mod manifests;
mod module_names;
pub(crate) mod publish;
pub(crate) mod semver;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map_or_else(|| xtask.to_path_buf(), Path::to_path_buf)
}

/// Returns the target folder of builds.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |path| root().join(path))
}

/// Runs a command at the root and fails if it does.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Returns what a command at the root prints.
pub(crate) fn printed(command: &mut Command) -> Result<String> {
    let output = command.current_dir(root()).output().with_context(|| format!("cannot start {command:?}"))?;
    let (shown, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?}: {shown}{errors}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the files under version control whose names end so.
pub(crate) fn tracked(ending: &str) -> Result<Vec<PathBuf>> {
    let files = printed(Command::new("git").args(["ls-files", "--", &format!("*{ending}")]))?;
    Ok(files.lines().map(PathBuf::from).collect())
}
