//! Every published crate can be packaged and built from its package.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{root, succeed};

/// Runs `cargo publish --dry-run` on all crates, in a target folder of its own.
pub(crate) fn check() -> Result<()> {
    forget_unpacked(&cargo_home()?.join("registry/src"))?;
    let mut publish = Command::new("cargo");
    publish.args(["publish", "--dry-run", "--workspace", "--allow-dirty"]);
    succeed(publish.env("CARGO_TARGET_DIR", "target/publish").current_dir(root()))
}

/// Removes our crates from the sources that cargo has unpacked. A dry run leaves them there, and the next one would
/// build against them: cargo takes a version that it has unpacked for final, and ours stays the same between releases.
fn forget_unpacked(sources: &Path) -> Result<()> {
    let Ok(registries) = fs::read_dir(sources) else {
        return Ok(());
    };
    for registry in registries {
        for package in fs::read_dir(registry?.path())? {
            let package = package?;
            if package.file_name().to_string_lossy().starts_with("throttlekit-") {
                fs::remove_dir_all(package.path())?;
            }
        }
    }
    Ok(())
}

fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = env::home_dir().context("no home folder; set CARGO_HOME")?;
    Ok(home.join(".cargo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_unpacked_crates_are_removed() {
        let sources = env::temp_dir().join(format!("throttlekit-unpacked-{}", std::process::id()));
        for package in ["throttlekit-core-0.1.0", "throttlekit-0.1.0", "tokio-1.48.0"] {
            fs::create_dir_all(sources.join("local").join(package)).unwrap();
        }
        forget_unpacked(&sources).unwrap();
        let left = fs::read_dir(sources.join("local")).unwrap();
        let left: Vec<_> = left.map(|package| package.unwrap().file_name()).collect();
        fs::remove_dir_all(&sources).unwrap();
        assert_eq!(left, ["tokio-1.48.0"]);
    }
}
