//! Links of the built book: each leads to a file that exists, and to an element of that name in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

/// Returns the number of pages, the number of links and the dead ones. Other sites are not visited.
pub(super) fn check(site: &Path) -> Result<(usize, usize, Vec<String>)> {
    let mut pages = BTreeMap::new();
    collect(site, &mut pages)?;
    let ids: BTreeMap<&PathBuf, BTreeSet<&str>> =
        pages.iter().map(|(path, text)| (path, values(text, "id").collect())).collect();
    let (mut links, mut dead) = (0, Vec::new());
    for (page, text) in &pages {
        for link in values(text, "href").chain(values(text, "src")) {
            if link.contains("://")
                || link.starts_with("data:")
                || link.starts_with("mailto:")
                || link.is_empty()
            {
                continue;
            }
            links += 1;
            let (path, id) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { joined(page, path) };
            let known =
                ids.get(&target).map_or_else(|| target.exists(), |ids| id.is_empty() || ids.contains(id));
            if !known {
                dead.push(format!("{}: dead link {link}", page.strip_prefix(site).unwrap_or(page).display()));
            }
        }
    }
    Ok((pages.len(), links, dead))
}

/// Reads every page of a folder. The page for unknown paths is left out: its links depend on where it is served.
fn collect(folder: &Path, pages: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|ending| ending == "html") && !path.ends_with("404.html") {
            pages.insert(path.clone(), fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// The values of an attribute.
fn values<'a>(text: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
    let opening = format!(" {attribute}=\"");
    let starts: Vec<_> = text.match_indices(&opening).map(|(at, _)| at + opening.len()).collect();
    starts.into_iter().filter_map(|start| text[start..].split_once('"').map(|(value, _)| value))
}

/// The file that a link of a page leads to.
fn joined(page: &Path, link: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_and_anchors_are_found() {
        let site = std::env::temp_dir().join(format!("throttlekit-book-{}", std::process::id()));
        fs::create_dir_all(site.join("guides")).unwrap();
        let index = r##"<a href="guides/a.html#top"></a> <a href="guides/a.html#gone"></a> <a href="https://x.y/z"></a>"##;
        fs::write(site.join("index.html"), index).unwrap();
        fs::write(site.join("guides/a.html"), r#"<h1 id="top"></h1> <a href="../gone.html"></a>"#).unwrap();
        let checked = check(&site).unwrap();
        fs::remove_dir_all(&site).unwrap();
        let dead = ["guides/a.html: dead link ../gone.html", "index.html: dead link guides/a.html#gone"];
        assert_eq!(checked, (2, 3, dead.map(String::from).to_vec()));
    }
}
