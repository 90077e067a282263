//! Sequential ≡ fused, for every pair of rules on every store.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use throttlekit::clock::{Clock, PreciseClock};

use super::engine::{Engine, on};
use super::{Part, Setup};
use crate::runner::{Services, progress};
use throttlekit_verify::admission::{FUSED_BUGS, FusedReport, PAIRS, RULES, examine_fused, find_fused_bug};

/// Traces for each pair of rules, in memory and on each engine: there every call is a round trip, and ten
/// times as many would take hours on two cores. [`PER_PAIR`] requests more.
const FULL: (u64, u64) = (10_000, 1_000);
const SMALL: (u64, u64) = (50, 4);
/// The environment variable with the number of traces of each pair on each engine, instead of the number
/// above.
const PER_PAIR: &str = "THROTTLEKIT_TIMELINES_PER_PAIR";
/// Traces that run on one store: each has two limits, and a store in memory keeps 1,024.
const CHUNK: u64 = 500;
const SEEDED_TRACES_MAX: u64 = 20 * PAIRS;

pub(super) fn run(setup: Setup) -> Result<Part> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (in_memory, on_engines) = if setup.small { SMALL } else { FULL };
    let on_engines = match std::env::var(PER_PAIR) {
        Ok(chosen) => chosen.parse().with_context(|| format!("{PER_PAIR}={chosen}: write a whole number"))?,
        Err(_) => on_engines,
    };
    runtime.block_on(verify(setup.services, in_memory, on_engines))
}

async fn verify(services: Services, in_memory: u64, on_engines: u64) -> Result<Part> {
    let mut part = Part::default();
    println!("{} rules, {PAIRS} pairs of them", RULES.len());
    println!(
        "{:<12}{:>10}{:>10}{:>12}{:>12}{:>12}{:>12}{:>10}{:>12}{:>9}",
        "store",
        "per pair",
        "timelines",
        "calls",
        "rate denied",
        "cost denied",
        "states",
        "left out",
        "differences",
        "seconds"
    );
    let mut stores = serde_json::Map::new();
    for engine in Engine::all(services).await? {
        let per_pair = if engine.name() == "memory" { in_memory } else { on_engines };
        stores.insert(engine.name().into(), examine(&engine, per_pair, &mut part.broken).await);
    }
    for bug in FUSED_BUGS {
        part.seeded.note(bug.name(), find_fused_bug(Some(bug), SEEDED_TRACES_MAX).await.is_some());
    }
    part.figure = json!({ "pairs": PAIRS, "stores": stores });
    Ok(part)
}

async fn examine(engine: &Engine, per_pair: u64, broken: &mut Vec<String>) -> Value {
    let (clock, traces) = (PreciseClock::new(), per_pair * PAIRS);
    let begun = clock.now();
    let (mut report, mut next, mut difference) = (FusedReport::default(), 0, None);
    while next < traces && difference.is_none() {
        let seeds = next..(next + CHUNK).min(traces);
        next = seeds.end;
        match on!(engine, examine_fused, seeds) {
            Ok(played) => report = report.plus(played),
            Err(violation) => difference = Some(violation),
        }
        progress(engine.name(), next, traces);
    }
    let seconds = clock.now().since(begun).as_secs_f64();
    let FusedReport { traces, asks, denied_by_rate, denied_by_cost, states, left_out, .. } = report;
    println!(
        "{:<12}{per_pair:>10}{traces:>10}{asks:>12}{denied_by_rate:>12}{denied_by_cost:>12}{states:>12}{left_out:>10}{:>12}{seconds:>9.1}",
        engine.name(),
        u64::from(difference.is_some())
    );
    if let Some(violation) = difference {
        broken.push(format!("fused: {} differs: {violation}", engine.name()));
    } else if !report.saw_all() {
        broken.push(format!("fused: not every kind of answer came up on {}: {report:?}", engine.name()));
    }
    json!({
        "timelines_per_pair": per_pair,
        "timelines": traces,
        "calls": asks,
        "denied_by_rate": denied_by_rate,
        "denied_by_cost": denied_by_cost,
        "settled": report.settled,
        "states": states,
        "seconds": (seconds * 10.0).round() / 10.0,
    })
}
