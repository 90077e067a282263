//! The size of the public API, counted from what rustdoc shows and from the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{module_names, root, succeed, target};

/// Crates with an API that people write code against.
const CRATES: [&str; 8] = [
    "throttlekit",
    "throttlekit-core",
    "throttlekit-redis",
    "throttlekit-postgres",
    "throttlekit-telemetry",
    "throttlekit-client",
    "throttlekit-conformance",
    "throttlekit-server",
];
const ROOT_NAMES_MAX: usize = 25;
const SHAPES_MAX: usize = 3;
/// Enums that can have no further variant, or none that their users may miss: the steps of a state machine, states of
/// rules, and the operations of generated scenarios. Where one is added, every driver has to be changed.
const COMPLETE: [&str; 35] = [
    "BranchDecision",
    "Cadence",
    "Correction",
    "Credit",
    "Ending",
    "Fallback",
    "Guarantee",
    "HeartbeatOutcome",
    "HolderStep",
    "Merged",
    "MembershipOperation",
    "Need",
    "Never",
    "Operation",
    "OtherKeys",
    "PoolOperation",
    "Promise",
    "Reply",
    "ReportResponse",
    "Retry",
    "Review",
    "ScriptRule",
    "SlotOperation",
    "SlotStep",
    "Spec",
    "Spend",
    "State",
    "Stored",
    "StoreOperation",
    "Swapped",
    "Term",
    "Turn",
    "Used",
    "Weekday",
    "WordForm",
];
/// Structs with a decision in them that no call returns: a denial as an error, and what observers see.
const NOT_RETURNED: [&str; 2] = ["Denied", "Event"];
const QUESTIONS: [&str; 10] =
    ["What", "How", "Whether", "Who", "Whoever", "Whom", "Which", "When", "Where", "Why"];
const KINDS: [&str; 7] = ["constant", "enum", "fn", "struct", "trait", "type", "macro"];

/// One measure: the number, and the most that it may be.
struct Measure {
    name: &'static str,
    found: Vec<String>,
    max: usize,
}

/// Counts, prints the table and the figure, and fails if a number is too high.
pub(crate) fn check() -> Result<()> {
    // A re-export links to its source only if the crate that has it was documented before.
    document(&["throttlekit-core"], &[])?;
    document(&CRATES, &["--features", "full"])?;
    let pages = target().join("doc");
    let sources: Vec<Source> = CRATES.iter().map(|name| Source::read(name)).collect::<Result<_>>()?;
    let types: BTreeMap<&str, Types> =
        CRATES.iter().map(|name| Ok((*name, types(&pages, name)?))).collect::<Result<_>>()?;
    let measures = [
        Measure { name: "names at the root", found: root_names(&pages)?, max: ROOT_NAMES_MAX },
        Measure { name: "answer shapes", found: shapes(&sources), max: SHAPES_MAX },
        Measure { name: "String errors", found: each(&sources, Source::string_errors), max: 0 },
        Measure { name: "enums that may grow", found: growing(&sources, &types), max: 0 },
        Measure { name: "names of two types", found: doubled(&types), max: 0 },
        Measure { name: "docs that open with a question", found: each(&sources, Source::questions), max: 0 },
        Measure { name: "module names of before", found: module_names::replaced()?, max: 0 },
    ];
    for (name, types) in &types {
        println!("{name:<26}{:>5} public types", types.len());
    }
    println!();
    let mut figure = json!({ "name": "api" });
    let mut missed = Vec::new();
    for Measure { name, found, max } in &measures {
        println!("{name:<34}{:>5}  at most {max}", found.len());
        figure[name.replace(' ', "_")] = found.len().into();
        if found.len() > *max {
            missed.push(format!("{name}: {}", found.join(", ")));
        }
    }
    println!("figure: {figure}");
    ensure!(missed.is_empty(), "the API is too wide:\n  {}", missed.join("\n  "));
    Ok(())
}

fn document(crates: &[&str], features: &[&str]) -> Result<()> {
    let mut doc = Command::new("cargo");
    doc.current_dir(root()).args(["doc", "--no-deps", "--quiet"]).args(features);
    crates.iter().for_each(|name| _ = doc.args(["-p", name]));
    succeed(&mut doc)
}

fn each(sources: &[Source], of: impl Fn(&Source) -> Vec<String>) -> Vec<String> {
    sources.iter().flat_map(of).collect()
}

/// Returns the items and re-exports on the front page, without modules.
fn root_names(pages: &Path) -> Result<Vec<String>> {
    let page = read(&pages.join("throttlekit/index.html"))?;
    let items = KINDS.iter().flat_map(|kind| between(&page, &format!("href=\"{kind}."), ".html"));
    let names: BTreeSet<String> = items.chain(between(&page, "id=\"reexport.", "\"")).collect();
    Ok(names.into_iter().filter(|name| !name.contains('/')).collect())
}

/// The public types of a crate by name, each with the files that define it: a re-export has the file of the original.
type Types = BTreeMap<String, BTreeSet<String>>;

/// Returns the public structs, enums, traits and type aliases of a crate.
fn types(pages: &Path, name: &str) -> Result<Types> {
    let folder = pages.join(name.replace('-', "_"));
    let mut types = Types::new();
    for link in between(&read(&folder.join("all.html"))?, "href=\"", ".html") {
        let last = link.rsplit('/').next().unwrap_or_default();
        let kinds = ["struct.", "enum.", "trait.", "type."];
        let Some(of) = kinds.iter().find_map(|kind| last.strip_prefix(kind)) else { continue };
        let page = read(&folder.join(format!("{link}.html")))?;
        let file = between(&page, "/src/", ".html").into_iter().next().unwrap_or_default();
        types.entry(of.to_owned()).or_default().insert(file);
    }
    Ok(types)
}

/// Returns the names that two types have, in one crate or in two.
fn doubled(types: &BTreeMap<&str, Types>) -> Vec<String> {
    let mut all = Types::new();
    for (name, files) in types.values().flatten() {
        all.entry(name.clone()).or_default().extend(files.iter().cloned());
    }
    let doubled = all.into_iter().filter(|(_, files)| files.len() > 1);
    doubled.map(|(name, files)| format!("{name} ({})", Vec::from_iter(files).join(", "))).collect()
}

fn growing(sources: &[Source], types: &BTreeMap<&str, Types>) -> Vec<String> {
    let open = |source: &Source| {
        let public = &types[source.name];
        let enums = source.enums_without_non_exhaustive().into_iter();
        enums.filter(|name| public.contains_key(name) && !is_complete(name)).collect()
    };
    each(sources, open)
}

/// Checks whether no user may miss a variant. Seeded bugs are such: a check has to find each.
fn is_complete(name: &str) -> bool {
    name.ends_with("Bug") || COMPLETE.contains(&name)
}

/// Returns the public structs of the library that hold a decision, and the decision.
fn shapes(sources: &[Source]) -> Vec<String> {
    let library =
        sources.iter().filter(|source| ["throttlekit", "throttlekit-client"].contains(&source.name));
    let held = library
        .flat_map(Source::structs_with_a_decision)
        .filter(|name| !NOT_RETURNED.contains(&name.as_str()));
    std::iter::once("Decision".to_owned()).chain(held).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The sources of one crate, without tests.
struct Source {
    name: &'static str,
    files: Vec<(PathBuf, String)>,
}

impl Source {
    fn read(name: &'static str) -> Result<Self> {
        let (mut files, mut folders) = (Vec::new(), vec![root().join("crates").join(name).join("src")]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = fs::read_to_string(&path)?;
                    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                    files.push((path.clone(), code.to_owned()));
                }
            }
        }
        Ok(Self { name, files })
    }

    fn lines(&self) -> impl Iterator<Item = (&Path, usize, &str)> {
        self.files.iter().flat_map(|(path, text)| {
            text.lines().enumerate().map(move |(number, line)| (path.as_path(), number + 1, line.trim()))
        })
    }

    fn string_errors(&self) -> Vec<String> {
        let (mut found, mut open) = (Vec::new(), None);
        for (path, number, line) in self.lines() {
            if line.starts_with("pub ") && line.contains("fn ") {
                open = Some(number);
            }
            let Some(begins) = open else { continue };
            if line.contains(", String>") {
                found.push(place(path, begins));
            }
            if line.ends_with(['{', ';', '}']) {
                open = None;
            }
        }
        found
    }

    /// Finds the doc comments that open with a question word.
    fn questions(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut before = "";
        for (path, number, line) in self.lines() {
            let text = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
            let opens = !before.starts_with("///") && !before.starts_with("//!");
            let word = text.and_then(|text| text.split([' ', ',', '.', ':', ';', '\'']).next());
            if opens && word.is_some_and(|word| QUESTIONS.contains(&word)) {
                found.push(place(path, number));
            }
            before = line;
        }
        found
    }

    fn enums_without_non_exhaustive(&self) -> Vec<String> {
        self.files
            .iter()
            .flat_map(|(_, text)| {
                declared(text, "pub enum ", |above, _| !above.contains("#[non_exhaustive]"))
            })
            .collect()
    }

    fn structs_with_a_decision(&self) -> Vec<String> {
        let holds = |_: &str, body: &str| {
            body.lines().any(|line| {
                let field = line.trim().trim_start_matches("pub ");
                field == "decision: Decision," && !line.trim().starts_with("pub(")
            })
        };
        self.files.iter().flat_map(|(_, text)| declared(text, "pub struct ", holds)).collect()
    }
}

/// Returns the names of declarations that begin so, for which the attributes above and the body below pass the test.
fn declared(text: &str, begins: &str, passes: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(rest) = line.trim_start().strip_prefix(begins) else { continue };
        let attributes = lines[..at].iter().rev().take_while(|line| line.trim_start().starts_with("#["));
        let above: Vec<&str> = attributes.copied().collect();
        let below: Vec<&str> =
            lines[at..].iter().take_while(|line| line.trim_end() != "}").copied().collect();
        if passes(&above.join("\n"), &below.join("\n")) {
            found.push(
                rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default().to_owned(),
            );
        }
    }
    found
}

fn between(text: &str, begin: &str, end: &str) -> Vec<String> {
    text.split(begin).skip(1).filter_map(|rest| Some(rest.split_once(end)?.0.to_owned())).collect()
}

fn place(path: &Path, line: usize) -> String {
    format!("{}:{line}", path.strip_prefix(root()).unwrap_or(path).display())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source {
            name: "throttlekit",
            files: vec![(root().join("crates/throttlekit/src/limiter/mod.rs"), text.into())],
        }
    }

    #[test]
    fn each_kind_of_fault_is_found() {
        let bad = source(
            "/// How often.\npub enum Open {\n    A,\n}\n\npub fn f(\n) -> Result<(), String> {\n}\n\npub struct S {\n    pub decision: Decision,\n}\n",
        );
        assert_eq!(bad.questions().len(), 1);
        assert_eq!(bad.enums_without_non_exhaustive(), ["Open"]);
        assert_eq!(bad.string_errors().len(), 1);
        assert_eq!(bad.structs_with_a_decision(), ["S"]);
    }

    #[test]
    fn valid_sources_pass() {
        let good = source(
            "/// Says\n/// How often.\n#[derive(Debug)]\n#[non_exhaustive]\npub enum Open {\n    A,\n}\n\npub(crate) struct S {\n    decision: Decision,\n}\n",
        );
        assert!(good.questions().is_empty() && good.enums_without_non_exhaustive().is_empty());
        assert!(good.structs_with_a_decision().is_empty() && good.string_errors().is_empty());
    }

    #[test]
    fn a_name_of_two_types_is_found_and_a_re_export_is_not() {
        let of = |types: &[(&str, &str)]| -> Types {
            types.iter().map(|&(name, file)| (name.to_owned(), BTreeSet::from([file.to_owned()]))).collect()
        };
        let library = of(&[("A", "throttlekit/a.rs"), ("B", "throttlekit_core/b.rs")]);
        let core = of(&[("A", "throttlekit_core/a.rs"), ("B", "throttlekit_core/b.rs")]);
        let types = BTreeMap::from([("throttlekit", library), ("throttlekit-core", core)]);
        assert_eq!(doubled(&types), ["A (throttlekit/a.rs, throttlekit_core/a.rs)"]);
    }
}
