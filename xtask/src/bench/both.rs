//! `cargo xtask bench lease` and `… admission`: the cost of a lease in the process that spends it, and its
//! savings on Redis; the cost of a policy in process, and on Redis.

use std::process::Command;

use anyhow::{Result, bail, ensure};
use serde_json::{Map, Value, json};
use throttlekit_verify_drivers::figure_of;

use super::package;
use crate::services;

/// Runs both packages, even if the first misses a threshold, and ends with one line of figures. The options
/// are those of the part in process.
pub(super) fn run(suite: &str, options: &[String]) -> Result<()> {
    let engines = services::up_only(&["redis"])?;
    let suite = [suite.to_owned()];
    let inproc = figure(package("inproc", &[], &[suite.as_slice(), options].concat()))?;
    let redis = figure(package("stores", &engines, &suite))?;
    let merged = merged([inproc, redis]);
    println!("figure: {}", Value::Object(merged.clone()));
    let missed = missed(&merged);
    ensure!(missed.is_empty(), "missed: {}", missed.join(", "));
    Ok(())
}

fn figure(mut command: Command) -> Result<Map<String, Value>> {
    match figure_of(&mut command)?.0 {
        Value::Object(figure) => Ok(figure),
        other => bail!("the figures of the benchmarks are no object: {other}"),
    }
}

/// Merges all figures, and the misses of both parts.
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
