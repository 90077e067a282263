//! Proofs of several parts: each runs by itself or with the others, prints its own table, and gives its numbers to one line.

use anyhow::{Result, ensure};
use serde_json::{Map, Value};
use throttlekit::{Clock, PreciseClock};

/// What one part of a proof found: its numbers, and what was not as it must be.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) figure: Value,
    pub(crate) broken: Vec<String>,
}

/// Proves one part, at full size or small.
pub(crate) type Prove = fn(bool) -> Result<Part>;

/// Runs every part of the proof `what`, or those that are named, and fails if one of them found a law broken.
pub(crate) fn run(what: &str, parts: &[(&str, Prove)], args: &[&str]) -> Result<()> {
    if cfg!(debug_assertions) {
        return crate::prove::run_released(what, args);
    }
    let small = args.contains(&"--small");
    let named: Vec<_> = args.iter().filter(|&&arg| arg != "--small").collect();
    let known = |name: &&&str| parts.iter().any(|(part, _)| *part == **name);
    let names = || parts.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    ensure!(named.iter().all(known), "prove {what} takes --small and names of parts: {}", names());
    let (mut figure, mut broken) = (Map::new(), Vec::new());
    figure.insert("name".into(), format!("prove-{what}").into());
    for (name, part) in parts.iter().filter(|(part, _)| named.is_empty() || named.contains(&part)) {
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
