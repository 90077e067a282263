//! Slots: ceilings that are inferred, slots that are held under a lease, one ceiling for a fleet.

mod fleet;
mod held;
mod inference;
mod models;

use anyhow::{Result, ensure};
use serde_json::{Map, Value};
use throttlekit::{Clock, PreciseClock};

/// What one part of the proof found: its numbers, and what was not as it must be.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) figure: Value,
    pub(crate) broken: Vec<String>,
}

type Prove = fn(bool) -> Result<Part>;

const PARTS: [(&str, Prove); 4] =
    [("inference", inference::run), ("held", held::run), ("models", models::run), ("fleet", fleet::run)];

/// Runs every part, or the one that is named, and fails if one of them found a law broken.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    if cfg!(debug_assertions) {
        return crate::prove::run_released("slots", args);
    }
    let small = args.contains(&"--small");
    let named: Vec<_> = args.iter().filter(|&&arg| arg != "--small").collect();
    let known = |name: &&&str| PARTS.iter().any(|(part, _)| *part == **name);
    ensure!(named.iter().all(known), "prove slots takes --small and names of parts: {}", names());
    let (mut figure, mut broken) = (Map::new(), Vec::new());
    for (name, part) in PARTS.iter().filter(|(part, _)| named.is_empty() || named.contains(&part)) {
        println!("── {name}");
        let clock = PreciseClock::new();
        let begun = clock.now();
        let found = part(small)?;
        println!("── {name}: {:.1} s", clock.now().since(begun).as_secs_f64());
        figure.insert((*name).into(), found.figure);
        broken.extend(found.broken);
    }
    println!("figure: {}", Value::from(figure));
    ensure!(broken.is_empty(), "not proved:\n  {}", broken.join("\n  "));
    Ok(())
}

fn names() -> String {
    PARTS.map(|(name, _)| name).join(", ")
}
