//! Prices only remove admits, in process and on every store.

use anyhow::Result;
use serde_json::{Value, json};

use super::engine::{Engine, on};
use super::{Part, Setup};
use crate::runner::{Services, progress};
use throttlekit_verify::admission::{PRICED_BUGS, PricedReport, examine_priced, find_priced_bug};

/// Traces in memory, and on each engine.
const FULL: (u64, u64) = (100_000, 10_000);
const SMALL: (u64, u64) = (2_000, 200);
/// Traces that run on one store: each has two limits, and a store in memory keeps 1,024.
const CHUNK: u64 = 500;
const SEEDED_TRACES_MAX: u64 = 2_000;

pub(super) fn run(setup: Setup) -> Result<Part> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(verify(setup.services, if setup.small { SMALL } else { FULL }))
}

async fn verify(services: Services, (in_memory, on_engines): (u64, u64)) -> Result<Part> {
    let mut part = Part::default();
    println!(
        "{:<12}{:>10}{:>10}{:>10}{:>12}{:>20}{:>13}",
        "store", "timelines", "calls", "admitted", "priced out", "would have passed", "differences"
    );
    let mut stores = serde_json::Map::new();
    for engine in Engine::all(services).await? {
        let traces = if engine.name() == "memory" { in_memory } else { on_engines };
        stores.insert(engine.name().into(), examine(&engine, traces, &mut part.broken).await);
    }
    for bug in PRICED_BUGS {
        part.seeded.note(bug.name(), find_priced_bug(Some(bug), SEEDED_TRACES_MAX).await.is_some());
    }
    part.figure = json!({ "stores": stores });
    Ok(part)
}

async fn examine(engine: &Engine, traces: u64, broken: &mut Vec<String>) -> Value {
    let (mut report, mut next, mut difference) = (PricedReport::default(), 0, None);
    while next < traces && difference.is_none() {
        let seeds = next..(next + CHUNK).min(traces);
        next = seeds.end;
        match on!(engine, examine_priced, seeds) {
            Ok(played) => report = report.plus(played),
            Err(violation) => difference = Some(violation),
        }
        progress(engine.name(), next, traces);
    }
    let PricedReport { traces, asks, priced_out, removed, admitted, .. } = report;
    println!(
        "{:<12}{traces:>10}{asks:>10}{admitted:>10}{priced_out:>12}{removed:>20}{:>13}",
        engine.name(),
        u64::from(difference.is_some())
    );
    if let Some(violation) = difference {
        broken.push(format!("price: {} differs: {violation}", engine.name()));
    } else if !report.saw_all() {
        broken.push(format!("price: not every kind of answer came up on {}: {report:?}", engine.name()));
    }
    json!({
        "timelines": traces,
        "calls": asks,
        "admitted": admitted,
        "priced_out": priced_out,
        "would_have_passed": removed,
    })
}
