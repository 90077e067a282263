//! The composition matrix: every subset of axes × every possible denier × every mix of stores, on every
//! store.

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit::clock::{Clock, PreciseClock};

use super::engine::{Engine, on};
use super::{Part, Setup};
use crate::runner::Services;
use throttlekit_verify::admission::{
    Denier, MATRIX_BUGS, MatrixReport, cells, examine_matrix, find_matrix_bug,
};

/// The step between the cells that run on an engine.
const FULL: usize = 1;
const SMALL: usize = 7;

pub(super) fn run(setup: Setup) -> Result<Part> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(verify(setup.services, if setup.small { SMALL } else { FULL }))
}

async fn verify(services: Services, step: usize) -> Result<Part> {
    let mut part = Part::default();
    println!("{} cells, of which those with nothing on a store are played once", cells());
    println!(
        "{:<12}{:>8}{:>11}{:>9}   {:<44}{:>9}{:>11}{:>9}",
        "store",
        "cells",
        "decisions",
        "denials",
        "by slots, price, rate, cost, share",
        "states",
        "broken",
        "seconds"
    );
    let (mut stores, mut all) = (serde_json::Map::new(), MatrixReport::default());
    for engine in Engine::all(services).await? {
        let (figure, report) = examine(&engine, step, &mut part.broken).await;
        stores.insert(engine.name().into(), figure);
        all = all.plus(report);
    }
    for bug in MATRIX_BUGS {
        part.seeded.note(bug.name(), find_matrix_bug(Some(bug)).await.is_some());
    }
    if all.told_by.contains(&0) || !all.adds_up() {
        part.broken.push(format!("matrix: denials do not add up, or someone never denied: {all:?}"));
    }
    part.figure = json!({
        "cells": cells(),
        "stores": stores,
        "decisions": all.decisions,
        "denials": all.denials,
        "denials_by": by(&all),
        "told": all.told,
    });
    Ok(part)
}

fn by(report: &MatrixReport) -> Value {
    let each = Denier::ALL.iter().zip(report.told_by);
    each.map(|(denier, told)| (format!("{denier:?}").to_lowercase(), json!(told))).collect()
}

async fn examine(engine: &Engine, step: usize, broken: &mut Vec<String>) -> (Value, MatrixReport) {
    let clock = PreciseClock::new();
    let begun = clock.now();
    let in_memory = engine.name() == "memory";
    let step = if in_memory { 1 } else { step };
    let (report, violation) = match on!(engine, examine_matrix, step, in_memory) {
        Ok(report) => (report, None),
        Err(violation) => (MatrixReport::default(), Some(violation)),
    };
    let seconds = clock.now().since(begun).as_secs_f64();
    let MatrixReport { cells, decisions, denials, told_by, states, .. } = report;
    let told_by = format!("{told_by:?}");
    println!(
        "{:<12}{cells:>8}{decisions:>11}{denials:>9}   {told_by:<44}{states:>9}{:>11}{seconds:>9.1}",
        engine.name(),
        u64::from(violation.is_some())
    );
    broken.extend(violation.map(|violation| format!("matrix: on {}: {violation}", engine.name())));
    (json!({ "cells": cells, "decisions": decisions, "denials": denials, "states": states }), report)
}
