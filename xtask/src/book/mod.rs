//! `cargo xtask book`: builds the book of `docs/` and fails if a link is dead or a Rust block is not tested.
//!
//! * `reference` writes the pages that are generated: policy fields, command line, HTTP and gRPC APIs.
//! * [`site`] looks for dead links in the built pages.
//! * [`blocks`] finds Rust blocks that no doc test compiles.
//! * [`prose`] counts sentence lengths and words to avoid.

mod blocks;
pub(crate) mod prose;
pub(crate) mod reference;
mod site;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::repository::{root, succeed};

/// The version of mdBook that CI installs.
const MDBOOK: &str = "0.5.1";

/// Builds the book in `target/book` and checks it.
pub(crate) fn build() -> Result<()> {
    succeed(Command::new(mdbook()?).arg("build").arg(root().join("docs")))?;
    let (pages, links, dead) = site::check(&root().join("target/book"))?;
    let untested = blocks::untested()?;
    dead.iter().chain(&untested).for_each(|problem| println!("  {problem}"));
    let figure = json!({
        "name": "book", "pages": pages, "links": links, "dead_links": dead.len(), "untested_blocks": untested.len(),
    });
    println!("figure: {figure}");
    ensure!(dead.is_empty() && untested.is_empty(), "the book has problems; they are listed above");
    Ok(())
}

/// Returns the path of mdBook. Installs it below `target` unless it was installed; unoptimized, since one book takes it
/// a second and the compiler minutes.
fn mdbook() -> Result<PathBuf> {
    let tools = root().join("target/tools");
    let program = tools.join("bin/mdbook");
    if program.exists() {
        return Ok(program);
    }
    let mut install = Command::new("cargo");
    install.args([
        "install",
        "--debug",
        "--locked",
        "--quiet",
        "--no-default-features",
        "--features",
        "search",
    ]);
    install.args([&format!("mdbook@{MDBOOK}"), "--root"]).arg(&tools);
    install.env("CARGO_TARGET_DIR", root().join("target/tools/build"));
    succeed(&mut install)?;
    Ok(program)
}
