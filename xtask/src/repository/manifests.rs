//! Manifests of published crates: what crates.io and docs.rs show, licence texts, and which Rust they need.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::{printed, root};

/// The oldest Rust that the library crates support. The policy is in CONTRIBUTING.md.
pub(crate) const LIBRARY_RUST: &str = "1.88";
/// Published programs, which need the Rust that they are built with.
const PROGRAMS: [&str; 2] = ["throttlekit-server", "throttlekit-cli"];
/// Features that `full` does not name: itself and the default, a second crypto provider, what another one implies, and
/// what is for verification only.
const NOT_IN_FULL: [&str; 5] = ["default", "full", "seeded", "tls", "tls-aws-lc-rs"];
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    manifest_path: PathBuf,
    publish: Option<Vec<String>>,
    description: Option<String>,
    license: Option<String>,
    repository: Option<String>,
    readme: Option<PathBuf>,
    keywords: Vec<String>,
    categories: Vec<String>,
    rust_version: Option<String>,
    features: BTreeMap<String, Vec<String>>,
    metadata: Value,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    req: String,
    path: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<EdgeKind>,
}

#[derive(Deserialize)]
struct EdgeKind {
    kind: Option<String>,
}

/// Fails if a published crate lacks something, or if a library crate needs a newer Rust than it states.
pub(crate) fn check() -> Result<()> {
    let metadata = load()?;
    let mut problems = Vec::new();
    for package in metadata.published() {
        let found = package.problems()?;
        problems.extend(found.iter().map(|problem| format!("{}: {problem}", package.name)));
    }
    for package in metadata.members() {
        let found = package.forgotten_tests()?;
        problems.extend(found.iter().map(|name| format!("{}: tests/main.rs lacks `{name}`", package.name)));
    }
    let built = metadata.built_by_libraries();
    let too_new = built.iter().filter(|package| package.needs().is_some_and(is_newer));
    problems.extend(too_new.map(|package| {
        format!("{} {} needs a newer Rust than {LIBRARY_RUST}", package.name, package.version)
    }));
    ensure!(problems.is_empty(), "manifests:\n  {}", problems.join("\n  "));
    let silent = built.iter().filter(|package| package.needs().is_none()).count();
    println!(
        "library crates build {} packages: {} state Rust {LIBRARY_RUST} or older, {silent} state none",
        built.len(),
        built.len() - silent,
    );
    Ok(())
}

/// Returns the names of the published library crates.
#[cfg(test)]
pub(crate) fn libraries() -> Result<Vec<String>> {
    let metadata = load()?;
    let names = metadata.published().map(|package| package.name.clone());
    Ok(names.filter(|name| !PROGRAMS.contains(&name.as_str())).collect())
}

/// A published crate.
pub(crate) struct Published {
    pub(crate) name: String,
    pub(crate) version: String,
}

impl Published {
    /// Returns the name of its package's folder.
    pub(crate) fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

/// Returns all published crates.
pub(crate) fn published() -> Result<Vec<Published>> {
    let metadata = load()?;
    let crates = metadata.published().map(|package| {
        let (name, version) = (package.name.clone(), package.version.clone());
        Published { name, version }
    });
    Ok(crates.collect())
}

fn load() -> Result<Metadata> {
    let mut command = Command::new("cargo");
    command.args(["metadata", "--format-version=1", "--all-features", "--locked"]);
    serde_json::from_str(&printed(&mut command)?).context("cargo metadata")
}

impl Metadata {
    fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    fn published(&self) -> impl Iterator<Item = &Package> {
        self.members().filter(|package| package.publish.is_none())
    }

    /// Returns the library crates and their dependencies, on any system and with any feature, without tests.
    fn built_by_libraries(&self) -> Vec<&Package> {
        let packages: BTreeMap<_, _> = self.packages.iter().map(|package| (&package.id, package)).collect();
        let nodes: BTreeMap<_, _> = self.resolve.nodes.iter().map(|node| (&node.id, node)).collect();
        let libraries = self.published().filter(|package| package.is_library());
        let mut waiting: Vec<&String> = libraries.map(|package| &package.id).collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = waiting.pop() {
            if seen.insert(id) {
                let built = nodes[id].deps.iter().filter(|edge| edge.is_built());
                waiting.extend(built.map(|edge| &edge.pkg));
            }
        }
        seen.iter().map(|id| packages[*id]).collect()
    }
}

impl Edge {
    fn is_built(&self) -> bool {
        self.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev"))
    }
}

impl Package {
    fn needs(&self) -> Option<&str> {
        self.rust_version.as_deref()
    }

    fn is_library(&self) -> bool {
        !PROGRAMS.contains(&self.name.as_str())
    }

    /// Returns the modules that a crate with one program for all of its tests leaves out: nothing would run
    /// these.
    fn forgotten_tests(&self) -> Result<Vec<String>> {
        let folder = self.manifest_path.with_file_name("tests");
        let Ok(main) = fs::read_to_string(folder.join("main.rs")) else { return Ok(Vec::new()) };
        let mut forgotten = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let file = entry?.file_name();
            let name = file.to_string_lossy();
            let module = name.strip_suffix(".rs").map(|name| format!("mod {name};"));
            forgotten.extend(module.filter(|module| name != "main.rs" && !main.contains(module.as_str())));
        }
        Ok(forgotten)
    }

    fn problems(&self) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        let mut expect = |holds: bool, problem: &str| {
            if !holds {
                problems.push(problem.to_owned());
            }
        };
        expect(self.description.is_some(), "no description");
        expect(self.license.as_deref() == Some("MIT OR Apache-2.0"), "no licence");
        expect(self.repository.is_some(), "no repository");
        expect(self.readme.as_deref() == Some(Path::new("README.md")), "no README.md of its own");
        expect((1..=5).contains(&self.keywords.len()), "one to five keywords");
        expect(!self.categories.is_empty(), "no categories");
        expect(self.metadata["docs"]["rs"]["all-features"] == true, "docs.rs builds it without all features");
        let library_rust = self.needs() == Some(LIBRARY_RUST);
        expect(!self.is_library() || library_rust, "a library crate states another rust-version");
        let full = self.features.get("full").map_or(&[][..], Vec::as_slice);
        for feature in self.features.keys().filter(|feature| !NOT_IN_FULL.contains(&feature.as_str())) {
            expect(full.contains(feature), &format!("`full` lacks the feature `{feature}`"));
        }
        for dependency in &self.dependencies {
            // One with a version would have to be on crates.io first, and several of these depend on this crate.
            let by_path_only = dependency.path.is_none() || dependency.req == "*";
            let is_dev = dependency.kind.as_deref() == Some("dev");
            expect(by_path_only || !is_dev, &format!("a version on the dev-dependency {}", dependency.name));
        }
        for name in LICENCES {
            let text = fs::read(self.manifest_path.with_file_name(name)).unwrap_or_default();
            expect(text == fs::read(root().join(name))?, &format!("{name} is not the repository's"));
        }
        Ok(problems)
    }
}

/// Returns `true` if a Rust version is newer than library crates support.
fn is_newer(version: &str) -> bool {
    let minor = |version: &str| version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    minor(version) > minor(LIBRARY_RUST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(is_newer("1.89") && is_newer("1.95.0") && is_newer("1.100"));
        assert!(!is_newer("1.88.0") && !is_newer("1.9") && !is_newer("1.63"));
    }
}
