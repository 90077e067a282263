//! Names of modules and files that standard terms replaced.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::{root, tracked};

/// Words of old module names: those of the glossary, in singular and plural. `word` and `line` are missing, since words
/// of memory and cache lines are called so.
const REPLACED: &[&str] = &[
    "ask",
    "asks",
    "bar",
    "bars",
    "beat",
    "beats",
    "conduct",
    "desk",
    "desks",
    "door",
    "doors",
    "drawer",
    "drawers",
    "fleet",
    "fleets",
    "flight",
    "flights",
    "fold",
    "folds",
    "form",
    "forms",
    "gate",
    "gates",
    "heard",
    "home",
    "homes",
    "hub",
    "keeper",
    "keepers",
    "lane",
    "lanes",
    "law",
    "laws",
    "mark",
    "marks",
    "mend",
    "mishap",
    "mishaps",
    "parcel",
    "parcels",
    "past",
    "place",
    "places",
    "planted",
    "played",
    "prove",
    "purse",
    "purses",
    "roll",
    "rolls",
    "room",
    "rooms",
    "seat",
    "seats",
    "seeing",
    "storm",
    "storms",
    "stories",
    "story",
    "tier",
    "till",
    "tills",
    "timeline",
    "timelines",
    "together",
    "told",
    "weather",
    "witness",
    "world",
    "worlds",
    "worth",
];
/// Endings of files that are modules, or parts of one.
const ENDINGS: [&str; 4] = [".rs", ".lua", ".sql", ".py"];
/// A tool names the modules in it after services on the wire.
const GENERATED: &str = "generated";

/// Returns each file, folder and inline module with a replaced word in its name, in every crate of the repository:
/// published or not, and in tests, benchmarks and examples.
pub(super) fn replaced() -> Result<Vec<String>> {
    let mut found = BTreeSet::new();
    for ending in ENDINGS {
        for file in tracked(ending)? {
            found.extend(in_path(&file));
            if ending == ".rs" && root().join(&file).exists() {
                found.extend(in_source(&file, &fs::read_to_string(root().join(&file))?));
            }
        }
    }
    Ok(found.into_iter().collect())
}

/// Returns the path up to each folder or file whose name has a replaced word.
fn in_path(file: &Path) -> Vec<String> {
    let upward = file.ancestors().filter(|path| {
        let name = path.file_stem().map(|name| name.to_string_lossy());
        name.is_some_and(|name| has_replaced_word(&name))
    });
    upward.map(|path| path.display().to_string()).collect()
}

/// Returns the modules that are declared with a replaced word in their names.
fn in_source(file: &Path, text: &str) -> Vec<String> {
    if file.iter().any(|part| part == GENERATED) {
        return Vec::new();
    }
    let declared = text.lines().filter_map(declared_module).filter(|name| has_replaced_word(name));
    declared.map(|name| format!("{}: mod {name}", file.display())).collect()
}

/// Returns the name of the module that a line declares, inline or in a file.
fn declared_module(line: &str) -> Option<&str> {
    let (visibility, rest) = line.trim_start().split_once("mod ")?;
    let is_visibility = visibility.is_empty() || (visibility.starts_with("pub") && visibility.ends_with(' '));
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    let ends = rest[name.len()..].trim_start();
    (is_visibility && ends.starts_with([';', '{'])).then_some(name)
}

fn has_replaced_word(name: &str) -> bool {
    name.split(['_', '-']).any(|word| REPLACED.contains(&word.to_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_word_is_found_in_files_folders_and_inline_modules() {
        let found = |path: &str| in_path(Path::new(path));
        assert_eq!(found("crates/a/src/world.rs"), ["crates/a/src/world.rs"]);
        assert_eq!(found("crates/a/tests/fleet/mod.rs"), ["crates/a/tests/fleet"]);
        assert_eq!(found("apps/b/src/pool_storm.rs"), ["apps/b/src/pool_storm.rs"]);
        assert_eq!(found("crates/c/src/lua/each_beat.lua"), ["crates/c/src/lua/each_beat.lua"]);
        let text = "mod laws;\n    pub(crate) mod seat {\npub mod doors;\n";
        let modules = ["a.rs: mod laws", "a.rs: mod seat", "a.rs: mod doors"];
        assert_eq!(in_source(Path::new("a.rs"), text), modules);
    }

    #[test]
    fn every_word_of_the_list_is_found_alone_and_in_a_longer_name() {
        for word in REPLACED {
            assert!(has_replaced_word(word) && has_replaced_word(&format!("first_{word}")), "{word}");
            assert!(!has_replaced_word(&format!("{word}x")), "{word}");
        }
    }

    #[test]
    fn other_names_and_generated_modules_pass() {
        let good = ["crates/a/src/heartbeat.rs", "crates/a/src/cache_lines.rs", "crates/a/src/rate/word.rs"];
        assert!(good.iter().all(|path| in_path(Path::new(path)).is_empty()));
        let text = "// mod world;\nlet mod_law = 1;\nuse a::mod_seat;\n    /// mod roll;\n";
        assert!(in_source(Path::new("a.rs"), text).is_empty());
        assert!(in_source(Path::new("src/generated/a.rs"), "pub mod fleet_client {\n").is_empty());
    }
}
