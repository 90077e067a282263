//! Our own golden vectors: written by the core, kept in the repository, checked for drift.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use throttlekit_conformance::vectors::{folder, generate};

/// Writes every vector.
pub(crate) fn write() -> Result<()> {
    let vectors = generate();
    fs::create_dir_all(folder())?;
    for (name, text) in &vectors {
        let path = folder().join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("{} vectors in {}", vectors.len(), folder().display());
    strangers()
}

/// Fails if a vector on disk differs from the core's responses.
pub(crate) fn check() -> Result<()> {
    let remedy = "run `cargo xtask vectors` and review the change";
    for (name, text) in generate() {
        let kept = fs::read_to_string(folder().join(&name)).unwrap_or_default();
        ensure!(kept == text, "{name} has drifted; {remedy}");
    }
    strangers()
}

/// Fails if the directory contains a vector that is not generated. The vectors of the first implementation
/// are never written.
fn strangers() -> Result<()> {
    let mut written: BTreeSet<String> = generate().into_iter().map(|(name, _)| name).collect();
    written.insert("golden.json".into());
    for entry in fs::read_dir(folder())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        ensure!(
            written.contains(&name),
            "{name} is in {} and nobody writes it; delete it",
            folder().display()
        );
    }
    Ok(())
}
