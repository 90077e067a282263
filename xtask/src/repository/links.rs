//! Links of documents and doc comments into the repository: they name a file that exists and a heading in it.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use super::{root, tracked};

/// The addresses of repository files on the web.
const FILES: [&str; 2] = [
    "https://github.com/throttlekit/throttlekit/blob/main/",
    "https://github.com/throttlekit/throttlekit/tree/main/",
];

/// Fails if a link is broken, or if a README of a crate has a relative one: crates.io would not find it.
pub(crate) fn check() -> Result<()> {
    let mut broken = examine(".md", links)?;
    broken.extend(examine(".rs", addresses)?);
    ensure!(broken.is_empty(), "broken links:\n  {}", broken.join("\n  "));
    Ok(())
}

/// Returns the broken links of the files whose names end with `ending`.
fn examine(ending: &str, links: fn(&str) -> Vec<&str>) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for page in tracked(ending)? {
        let text = fs::read_to_string(root().join(&page))?;
        for link in links(&text) {
            broken.extend(problem(&page, link).map(|why| format!("{}: {link}: {why}", page.display())));
        }
    }
    Ok(broken)
}

/// Returns the problem of a link, if any. Other sites are not visited.
fn problem(page: &Path, link: &str) -> Option<&'static str> {
    let folder = page.parent().unwrap_or(Path::new(""));
    let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
    let file = match FILES.iter().find_map(|files| path.strip_prefix(files)) {
        Some(file) => root().join(file),
        None if path.contains("://") || path.starts_with("mailto:") => return None,
        None if path.is_empty() => root().join(page),
        None if page.starts_with("crates") => return Some("relative, where crates.io shows it"),
        None => root().join(folder).join(path),
    };
    if !file.exists() {
        return Some("no such file");
    }
    let heading = heading.filter(|_| file.extension().is_some_and(|extension| extension == "md"))?;
    let text = fs::read_to_string(&file).unwrap_or_default();
    let known = prose(&text).filter(|line| line.starts_with('#')).any(|line| slug(line) == heading);
    (!known).then_some("no such heading")
}

/// Returns the lines outside fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Returns the targets of `[text](target)` outside fenced code.
fn links(text: &str) -> Vec<&str> {
    let targets = prose(text).flat_map(|line| line.split("](").skip(1));
    targets.filter_map(|rest| Some(rest.split_once(')')?.0)).collect()
}

/// Returns the addresses of repository files in a source file.
fn addresses(text: &str) -> Vec<&str> {
    let ends = |rest: &str| rest.find([')', '>', '"', ' ', '\n', '`']).unwrap_or(rest.len());
    let starts = FILES.iter().flat_map(|files| text.match_indices(files));
    starts.map(|(start, _)| &text[start..start + ends(&text[start..])]).collect()
}

/// Returns GitHub's anchor of a heading.
fn slug(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter);
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars().filter(kept).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_named_as_on_github() {
        assert_eq!(slug("### `fair-1` … `fair-4`"), "fair-1--fair-4");
        assert_eq!(slug("## As a service, for any language"), "as-a-service-for-any-language");
    }

    #[test]
    fn links_in_code_are_ignored() {
        assert_eq!(links("[a](x.md) ![b](y.svg#z)\n```\n[c](d)\n```\n"), ["x.md", "y.svg#z"]);
    }

    #[test]
    fn broken_links_are_found() {
        let problem = |page: &str, link| problem(Path::new(page), link);
        assert_eq!(problem("README.md", "docs/guides/protect-an-api.md"), None);
        assert_eq!(problem("README.md", "docs/nothing.md"), Some("no such file"));
        assert_eq!(problem("README.md", "ARCHITECTURE.md#nothing"), Some("no such heading"));
        assert_eq!(problem("docs/guides/protect-an-api.md", "../README.md"), None);
        assert_eq!(
            problem("crates/throttlekit/README.md", "LICENSE-MIT"),
            Some("relative, where crates.io shows it")
        );
        assert_eq!(problem("crates/throttlekit/README.md", "https://example.com/x#y"), None);
        let address = format!("{}docs/nothing.md", FILES[0]);
        assert_eq!(problem("crates/throttlekit/README.md", &address), Some("no such file"));
    }
}
