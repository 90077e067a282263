//! Finds import cycles between modules of different folders.
//!
//! Reads every `use` declaration and inline `crate::…` or `super::…` path of a crate's `src`, without test code, and
//! follows re-exports. Modules of one folder may use each other; a cycle with a folder in it is an error. Relies on the
//! layout of rustfmt.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::repository::root;

/// Folders of crates; the root is the one of `xtask`.
const PARENTS: [&str; 5] = ["apps", "crates", "examples", "benches", "."];
/// Re-exports that are followed one after the other.
const REEXPORTS_MAX: u32 = 8;

/// Names from the root of a crate to a module or an item.
type Names = Vec<String>;
/// For two modules of a folder, the first place where one uses the other.
type Uses = BTreeMap<(String, String), String>;

/// Fails if a crate has an import cycle, and names each with files and lines.
pub(crate) fn check() -> Result<()> {
    let root = root();
    let mut found = Vec::new();
    for parent in PARENTS {
        for entry in fs::read_dir(root.join(parent))? {
            let (src, mut files) = (entry?.path().join("src"), Vec::new());
            if src.is_dir() {
                read(&src, &mut files)?;
                found.extend(Modules::of(&src, files).cycles());
            }
        }
    }
    ensure!(found.is_empty(), "import cycles between folders:\n{}", found.join("\n"));
    Ok(())
}

fn read(folder: &Path, files: &mut Vec<(PathBuf, String)>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // Programs are crates of their own, and what a tool writes is not ours to order.
        if path.is_dir() && !path.ends_with("bin") && !path.ends_with("generated") {
            read(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push((path.clone(), fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

/// The modules of one crate, without those of tests.
struct Modules(BTreeMap<Names, Module>);

#[derive(Default)]
struct Module {
    file: PathBuf,
    /// Each used path, its imported name if it has one, and its line.
    uses: Vec<(Names, Option<String>, usize)>,
    tests: Vec<String>,
}

impl Modules {
    fn of(src: &Path, files: Vec<(PathBuf, String)>) -> Self {
        let (mut modules, mut tests) = (BTreeMap::new(), Vec::new());
        for (file, text) in files {
            let path = file.strip_prefix(src).unwrap_or(&file).with_extension("");
            let mut at: Names = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
            at.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
            let module = Module::parse(file, &text);
            tests.extend(module.tests.iter().map(|name| below(&at, name)));
            modules.insert(at, module);
        }
        modules.retain(|at, _| !tests.iter().any(|test| at.starts_with(test)));
        Self(modules)
    }

    fn cycles(&self) -> Vec<String> {
        let mut folders: BTreeMap<Names, Uses> = BTreeMap::new();
        for (here, module) in &self.0 {
            for (path, _, line) in &module.uses {
                for there in self.reached(here, path, 0) {
                    let common = here.iter().zip(&there).take_while(|(a, b)| a == b).count();
                    if let (Some(from), Some(to)) = (here.get(common), there.get(common)) {
                        let place = format!("{}:{line}: {}", module.file.display(), path.join("::"));
                        let uses = folders.entry(here[..common].to_vec()).or_default();
                        uses.entry((from.clone(), to.clone())).or_insert(place);
                    }
                }
            }
        }
        folders.iter().flat_map(|(folder, uses)| self.cycles_in(folder, uses)).collect()
    }

    fn cycles_in(&self, folder: &Names, uses: &Uses) -> Vec<String> {
        let is_folder = |name: &&String| {
            let at = below(folder, name);
            self.0.keys().any(|module| module.len() > at.len() && module.starts_with(&at))
        };
        let cycle_of = |name| -> BTreeSet<&String> {
            let after = reachable(name, uses);
            after.into_iter().filter(|other| reachable(other, uses).contains(name)).collect()
        };
        let cycles: BTreeSet<_> = uses.keys().map(|(from, _)| cycle_of(from)).collect();
        let told = |cycle: &BTreeSet<&String>| -> String {
            let inside = uses.iter().filter(|((from, to), _)| cycle.contains(from) && cycle.contains(to));
            inside.map(|((from, to), place)| format!("  {from} → {to}: {place}\n")).collect()
        };
        cycles.iter().filter(|cycle| cycle.iter().any(is_folder)).map(told).collect()
    }

    /// Returns the modules that a path goes through, including those behind re-exports.
    fn reached(&self, here: &[String], path: &[String], depth: u32) -> Vec<Names> {
        let supers = path.iter().take_while(|name| *name == "super").count();
        let (mut at, rest) = match path[0].as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (here.to_vec(), &path[1..]),
            "super" => (here[..here.len().saturating_sub(supers)].to_vec(), &path[supers..]),
            child if self.0.contains_key(&below(here, child)) => (here.to_vec(), path),
            _ => return Vec::new(),
        };
        let mut reached = vec![at.clone()];
        for name in rest {
            let next = below(&at, name);
            if !self.0.contains_key(&next) {
                let mut uses = self.0.get(&at).into_iter().flat_map(|module| &module.uses);
                let import = uses.find(|(_, import, _)| import.as_ref() == Some(name));
                if let Some((path, ..)) = import.filter(|_| depth < REEXPORTS_MAX) {
                    reached.extend(self.reached(&at, path, depth + 1));
                }
                break;
            }
            reached.push(next.clone());
            at = next;
        }
        reached
    }
}

impl Module {
    fn parse(file: PathBuf, text: &str) -> Self {
        let mut module = Self { file, ..Self::default() };
        let code = |line: &'_ str| line.split("//").next().unwrap_or_default().trim_end().to_owned();
        let mut lines = text.lines().map(code).zip(1..);
        while let Some((line, number)) = lines.next() {
            if line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test") {
                // A module of tests is a file of its own, or the end of one.
                let item = lines.next().map(|(item, _)| item).unwrap_or_default();
                match item.split_once("mod ") {
                    Some((_, name)) if name.ends_with(';') => module.tests.push(name.replace(';', "")),
                    Some(_) => break,
                    None => {}
                }
            } else if let Some((_, tree)) = line.split_once("use ").filter(|(before, _)| is_bare(before)) {
                let mut tree = tree.to_owned();
                while !tree.ends_with(';') {
                    let Some((more, _)) = lines.next() else { break };
                    tree += more.trim();
                }
                module.uses.extend(expand(tree.trim_end_matches(';')).iter().map(|path| {
                    let (path, alias) = path.split_once(" as ").unwrap_or((path.as_str(), ""));
                    let path = names(path);
                    let name = if alias.is_empty() { path.last().cloned() } else { Some(alias.to_owned()) };
                    (path, name, number)
                }));
            } else {
                let words = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
                let paths = words.filter(|word| word.starts_with("crate::") || word.starts_with("super::"));
                module.uses.extend(paths.map(|path| (names(path.trim_end_matches(':')), None, number)));
            }
        }
        module
    }
}

/// Returns `true` if only a visibility precedes `use`.
fn is_bare(before: &str) -> bool {
    before.trim().is_empty() || before.trim_start().starts_with("pub")
}

/// Returns the paths of a `use` tree such as `a::{b, c::{d, e}}`.
fn expand(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let (inner, mut depth) = (rest.rsplit_once('}').map_or(rest, |(inner, _)| inner), 0);
    let items = inner.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let items = items.map(str::trim).filter(|item| !item.is_empty());
    items.flat_map(expand).map(|path| format!("{head}{path}")).collect()
}

fn names(path: &str) -> Names {
    path.split("::").map(ToOwned::to_owned).collect()
}

fn below(at: &[String], name: &str) -> Names {
    at.iter().map(String::as_str).chain([name]).map(ToOwned::to_owned).collect()
}

/// Returns the modules that one uses, directly or through others.
fn reachable<'u>(from: &'u String, uses: &'u Uses) -> BTreeSet<&'u String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(from) = next.pop() {
        let direct = uses.keys().filter(|(user, _)| user == from).map(|(_, used)| used);
        next.extend(direct.filter(|used| reached.insert(*used)).collect::<Vec<_>>());
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| (path.into(), (*text).to_owned())).collect();
        Modules::of(Path::new(""), files).cycles()
    }

    #[test]
    fn a_cycle_between_folders_is_named_with_both_places() {
        let seeded = [
            ("lib.rs", "mod a;\nmod b;\npub use b::Deep;\n"),
            ("a/mod.rs", "mod inner;\n"),
            ("a/inner.rs", "// crate::c::X\nuse std::fmt;\nuse crate::{\n    Deep, // re-exported\n};\n"),
            ("b.rs", "pub struct Deep;\n\nfn f() {\n    super::a::g(1);\n}\n"),
        ];
        let told = "  a → b: a/inner.rs:3: crate::Deep\n  b → a: b.rs:4: super::a::g\n";
        assert_eq!(cycles(&seeded), [told]);
    }

    #[test]
    fn files_of_one_folder_may_use_each_other_and_tests_may_use_everything() {
        let allowed = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("a/mod.rs", "mod x;\nmod y;\n#[cfg(test)]\nmod tests;\n"),
            ("a/x.rs", "use super::y::{Y, Z as W};\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n"),
            ("a/y.rs", "pub(super) use super::x::X;\n"),
            ("a/tests.rs", "use crate::b::B;\n"),
            ("b.rs", "use crate::a::x::X;\nuse crate::c::C;\n"),
            ("c.rs", "use crate::b::B;\n"),
        ];
        assert_eq!(cycles(&allowed), Vec::<String>::new());
    }
}
