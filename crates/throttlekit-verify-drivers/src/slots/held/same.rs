//! The same trace on every store, holders over a lossy network, and every seeded bug.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit_conformance::slots::{
    HolderBug, Seen, SlotBug, SlotReport, check_holders, examine_slots, find_holder_bug, find_slot_bug,
};

use super::Part;
use super::engine::Engine;
use crate::runner::{in_threads, progress};

const SEEDED_SCENARIOS_MAX: u64 = 10_000;
const CHUNK: u64 = 1_000;

pub(super) async fn run(engines: &[Engine], traces: u64, scenarios: u64, part: &mut Part) -> Result<Value> {
    println!("{:<12}{:>10}{:>12}{:>13}", "store", "timelines", "answers", "differences");
    let mut answers = serde_json::Map::new();
    for engine in engines {
        let report = examine(engine, traces, &mut part.broken).await;
        answers.insert(engine.name.clone(), json!(report.answers));
    }
    let seen = holders(scenarios, &mut part.broken);
    println!(
        "{scenarios} scenarios of holders: {} worked, {} fenced, {} told that they are lost, {} tables lost",
        seen.worked, seen.fenced, seen.lost, seen.restarts
    );
    for &bug in HolderBug::ALL {
        part.seeded.note(bug.name(), find_holder_bug(bug, SEEDED_SCENARIOS_MAX).is_some());
    }
    for &bug in SlotBug::ALL {
        part.seeded.note(bug.name(), find_slot_bug(bug, SEEDED_SCENARIOS_MAX).await.is_some());
    }
    Ok(json!({
        "timelines_each": traces,
        "answers": answers,
        "holder_worlds": scenarios,
        "holders_fenced": seen.fenced,
        "holders_lost": seen.lost,
        "tables_lost": seen.restarts,
    }))
}

async fn examine(engine: &Engine, traces: u64, broken: &mut Vec<String>) -> SlotReport {
    let (mut report, mut next) = (SlotReport::default(), 0);
    let mut difference = None;
    while next < traces && difference.is_none() {
        let seeds = next..(next + CHUNK).min(traces);
        next = seeds.end;
        let of = engine.clone();
        let make = move |clock| {
            let of = of.clone();
            async move { of.at(clock).await }
        };
        match examine_slots(make, seeds).await {
            Ok(played) => report = report.plus(played),
            Err(violation) => difference = Some(violation),
        }
        progress(&engine.name, next, traces);
    }
    let SlotReport { traces, answers, .. } = report;
    println!("{:<12}{traces:>10}{answers:>12}{:>13}", engine.name, u64::from(difference.is_some()));
    if let Some(violation) = difference {
        broken.push(format!("slots: {} does not answer as the book does: {violation}", engine.name));
    } else if !report.saw_all() {
        broken.push(format!("slots: not every kind of answer came up on {}: {report:?}", engine.name));
    }
    report
}

/// Runs scenarios on all threads.
fn holders(scenarios: u64, broken: &mut Vec<String>) -> Seen {
    let next = AtomicU64::new(0);
    let work = || {
        let (mut all, mut violation) = (Seen::default(), None);
        while violation.is_none() {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= scenarios {
                break;
            }
            match check_holders(seed, None) {
                Ok(seen) => all = plus(all, seen),
                Err(found) => violation = Some(found),
            }
        }
        (all, violation)
    };
    let progress = || format!("holders: {} of {scenarios}", next.load(Relaxed).min(scenarios));
    let mut all = Seen::default();
    for (seen, violation) in in_threads(&work, progress) {
        all = plus(all, seen);
        broken.extend(violation.map(|found| format!("slots: more work than slots: {found}")));
    }
    all
}

fn plus(a: Seen, b: Seen) -> Seen {
    Seen {
        worked: a.worked + b.worked,
        fenced: a.fenced + b.fenced,
        lost: a.lost + b.lost,
        restarts: a.restarts + b.restarts,
        full: a.full + b.full,
    }
}
