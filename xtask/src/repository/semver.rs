//! Public APIs beside those of the last release.

use std::process::Command;

use anyhow::Result;

use super::{printed, root, succeed};

/// Fails if a change since the last release needs a larger version number. Passes if there is no release yet.
pub(crate) fn check() -> Result<()> {
    let tags = printed(Command::new("git").args(["tag", "--list", "v*", "--sort=-version:refname"]))?;
    let Some(release) = tags.lines().next() else {
        println!("no release to compare with");
        return Ok(());
    };
    let mut command = Command::new("cargo");
    command.args(["semver-checks", "--workspace", "--baseline-rev", release]).current_dir(root());
    succeed(&mut command)
}
