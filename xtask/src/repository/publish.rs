//! Every published crate can be packaged, and compiles from its package alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::manifests::{self, Published};
use super::{root, succeed, target};

/// Packages all published crates, and checks each by itself, with its default features.
///
/// `cargo publish --dry-run` compiles each package with profiles of its own, which takes longer than all tests; a release
/// does that too. Here packages have the profiles of the workspace, and share what it compiled of their dependencies.
pub(crate) fn check() -> Result<()> {
    let published = manifests::published()?;
    let folder = root().join("target/publish");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let mut package = Command::new("cargo");
    package.args(["package", "--no-verify", "--allow-dirty", "--quiet", "--target-dir"]).arg(&folder);
    // Dependencies were downloaded to build this program: without a look at the index for each package.
    package.arg("--offline").args(published.iter().flat_map(|one| ["-p", &one.name]));
    succeed(package.current_dir(root()))?;
    let packages = unpack(&published, &folder)?;
    for Published { name, .. } in &published {
        println!("── {name}");
        let mut check = Command::new("cargo");
        check.args(["check", "--quiet", "--offline", "-p", name]).current_dir(&packages);
        succeed(check.env("CARGO_TARGET_DIR", target()))?;
    }
    println!("{} crates compile from their packages", published.len());
    Ok(())
}

/// Unpacks the packages into a workspace, in which they find each other and nothing of ours.
fn unpack(published: &[Published], folder: &Path) -> Result<PathBuf> {
    let packages = folder.join("packages");
    fs::create_dir_all(&packages)?;
    for one in published {
        let archive = folder.join("package").join(format!("{}.crate", one.folder()));
        // Files get the time of now: in an archive they all have the same, and cargo would take an old build for theirs.
        succeed(Command::new("tar").arg("-xzmf").arg(archive).arg("-C").arg(&packages))?;
    }
    let workspace = fs::read_to_string(root().join("Cargo.toml"))?;
    fs::write(packages.join("Cargo.toml"), manifest(published, &workspace))?;
    fs::copy(root().join("Cargo.lock"), packages.join("Cargo.lock"))?;
    Ok(packages)
}

/// Returns the manifest of the workspace of packages: its members, where they find each other, and the profiles.
fn manifest(published: &[Published], workspace: &str) -> String {
    let members: String = published.iter().map(|one| format!("\"{}\", ", one.folder())).collect();
    let places = published.iter().map(|one| format!("{} = {{ path = \"{}\" }}\n", one.name, one.folder()));
    let places: String = places.collect();
    let profiles = workspace.find("[profile.").map_or("", |begin| &workspace[begin..]);
    format!("[workspace]\nresolver = \"3\"\nmembers = [{members}]\n\n[patch.crates-io]\n{places}\n{profiles}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_find_each_other_and_have_the_profiles_of_the_workspace() {
        let published = ["a", "b"].map(|name| Published { name: name.into(), version: "0.1.0".into() });
        let text = manifest(&published, "[workspace]\nmembers = [\"x\"]\n\n[profile.dev]\ndebug = 0\n");
        let expected = "[workspace]\nresolver = \"3\"\nmembers = [\"a-0.1.0\", \"b-0.1.0\", ]\n\n[patch.crates-io]\n\
                        a = { path = \"a-0.1.0\" }\nb = { path = \"b-0.1.0\" }\n\n[profile.dev]\ndebug = 0\n";
        assert_eq!(text, expected);
    }
}
