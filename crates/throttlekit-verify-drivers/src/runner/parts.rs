//! Verifications of several parts: each runs alone or with the others, prints its own table, and adds its numbers to one line.

use anyhow::{Result, ensure};
use serde_json::{Map, Value};
use throttlekit::clock::{Clock, PreciseClock};
use throttlekit_conformance::bugs::Found;

use super::{Options, Run, Services};

/// The outcome of one part: its numbers, its violations, and the seeded bugs that it looked for.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) figure: Value,
    pub(crate) broken: Vec<String>,
    pub(crate) seeded: Found,
}

/// The size of a part, and the engines that it may start.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) small: bool,
    pub(crate) services: Services,
}

/// Verifies one part.
pub(crate) type Verify = fn(Setup) -> Result<Part>;

/// Runs every part, or the named ones.
pub(crate) fn run(parts: &[(&str, Verify)], options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let setup = Setup { small: options.has("--small"), services: run.services() };
    let named = options.words();
    let known = |name: &&str| parts.iter().any(|(part, _)| part == name);
    let names = || parts.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    ensure!(named.iter().all(known), "unknown part: expected some of {}", names());
    let mut figure = Map::new();
    for (name, part) in parts.iter().filter(|(part, _)| named.is_empty() || named.contains(part)) {
        println!("── {name}");
        let clock = PreciseClock::new();
        let begun = clock.now();
        let mut found = part(setup)?;
        if found.seeded.total() > 0 {
            println!("{}", found.seeded.line());
            found.figure["seeded"] = found.seeded.total().into();
            found.figure["seeded_found"] = found.seeded.found.len().into();
        }
        println!("── {name}: {:.1} s", clock.now().since(begun).as_secs_f64());
        figure.insert((*name).into(), found.figure);
        run.violated(found.broken);
        run.seeded(found.seeded);
    }
    Ok(figure.into())
}
