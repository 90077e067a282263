//! `cargo xtask bench lease` and `… admission`: what a lease costs in the process that spends it, and what it saves on Redis;
//! what a policy costs in process, and on Redis.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use super::package;
use crate::services;

/// The line that ends a run of benchmarks.
const FIGURE: &str = "figure: ";

/// Runs both packages, even if the first misses a bar, and ends with one line of figures. The options are those of the
/// part in process.
pub(super) fn run(suite: &str, options: &[String]) -> Result<()> {
    let engines = services::up_only(&["redis"])?;
    let suite = [suite.to_owned()];
    let inproc = figure(package("inproc", &[], &[suite.as_slice(), options].concat()))?;
    let redis = figure(package("stores", &engines.env(), &suite))?;
    let merged = merged([inproc, redis]);
    println!("{FIGURE}{}", Value::Object(merged.clone()));
    let missed = missed(&merged);
    ensure!(missed.is_empty(), "missed: {}", missed.join(", "));
    Ok(())
}

/// Shows what a package prints, but for its line of figures.
fn figure(mut command: Command) -> Result<Map<String, Value>> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cargo did not start")?;
    let mut figure = None;
    for line in BufReader::new(child.stdout.take().context("a pipe")?).lines() {
        let line = line?;
        match line.strip_prefix(FIGURE) {
            Some(json) => figure = Some(serde_json::from_str(json)?),
            None => println!("{line}"),
        }
    }
    let status = child.wait()?;
    figure.with_context(|| format!("the benchmarks ended with {status} and without figures"))
}

/// All figures, and whatever either part missed.
fn merged(parts: [Map<String, Value>; 2]) -> Map<String, Value> {
    let missed = parts.iter().flat_map(missed).collect::<Vec<_>>();
    let mut all: Map<_, _> = parts.into_iter().flatten().collect();
    all.insert("missed".to_owned(), json!(missed));
    all
}

fn missed(figure: &Map<String, Value>) -> Vec<String> {
    let names = figure.get("missed").and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}
