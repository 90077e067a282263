//! Rust blocks of the book: each is compiled as a doc test of the example `book`, or says that it is not ours to compile.

use std::fs;

use anyhow::Result;

use crate::repository::{root, tracked};

/// The crate whose doc tests are the pages.
const TESTS: &str = "examples/book/src/lib.rs";
/// Blocks that show another project's code.
const FOREIGN: &str = "```rust,ignore";

/// Returns the pages with Rust blocks that no doc test compiles, and blocks that are ignored outside of the
/// migration guide.
pub(super) fn untested() -> Result<Vec<String>> {
    let tested = fs::read_to_string(root().join(TESTS))?;
    let mut problems = Vec::new();
    for page in
        tracked(".md")?.into_iter().filter(|page| page.starts_with("docs") || page.ends_with("README.md"))
    {
        let (text, name) = (fs::read_to_string(root().join(&page))?, page.display().to_string());
        let blocks = text.lines().filter(|line| line.starts_with("```rust"));
        let (ignored, compiled): (Vec<_>, Vec<_>) = blocks.partition(|line| line.starts_with(FOREIGN));
        let of_the_book = page.starts_with("docs") || name == "README.md";
        if of_the_book && !compiled.is_empty() && !tested.contains(&format!("/{name}\"")) {
            problems.push(format!(
                "{name}: {} Rust blocks, and {TESTS} does not include the page",
                compiled.len()
            ));
        }
        if !ignored.is_empty() && !name.ends_with("guides/migrate.md") {
            problems.push(format!("{name}: {} ignored Rust blocks", ignored.len()));
        }
    }
    Ok(problems)
}
