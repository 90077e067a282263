//! Unified admission: one ask over all axes, whatever mix of stores they are on.

mod engine;
mod fused;

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

const PARTS: [(&str, Prove); 1] = [("fused", fused::run)];

/// Runs every part, or those that are named, and fails if one of them found a law broken.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    if cfg!(debug_assertions) {
        return crate::prove::run_released("admission", args);
    }
    let small = args.contains(&"--small");
    let named: Vec<_> = args.iter().filter(|&&arg| arg != "--small").collect();
    let known = |name: &&&str| PARTS.iter().any(|(part, _)| *part == **name);
    ensure!(named.iter().all(known), "prove admission takes --small and names of parts: {}", names());
    let (mut figure, mut broken) = (Map::new(), Vec::new());
    figure.insert("name".into(), "prove-admission".into());
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
