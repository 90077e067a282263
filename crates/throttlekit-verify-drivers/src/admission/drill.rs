//! Admission under faults: no slot leaked, every ledger exact.

use anyhow::Result;
use serde_json::json;

use super::{Part, Setup};
use crate::runner::progress;
use throttlekit_verify::drill::{DrillBug, drill, find};

const RUNS: u64 = 100_000;
const RUNS_SMALL: u64 = 2_000;
const SEEDED_RUNS_MAX: u64 = 2_000;
/// Runs between two progress reports.
const CHUNK: u64 = 1_000;

pub(super) fn run(setup: Setup) -> Result<Part> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    Ok(runtime.block_on(verify(if setup.small { RUNS_SMALL } else { RUNS })))
}

async fn verify(runs: u64) -> Part {
    let mut part = Part::default();
    let drilled = drill(0..runs, None, |done| {
        if done % CHUNK == 0 {
            progress("drill", done, runs);
        }
    });
    let drilled = match drilled.await {
        Ok(drilled) => drilled,
        Err(violation) => {
            part.broken.push(format!("drill: {violation}"));
            return part;
        }
    };
    for &bug in DrillBug::ALL {
        part.seeded.note(bug.name(), find(bug, SEEDED_RUNS_MAX).await.is_some());
    }
    println!(
        "{} runs, {} calls, {} admitted, {} tokens; {} futures dropped midway, {} panics, {} of {} calls to stores failed",
        drilled.runs,
        drilled.calls,
        drilled.admitted,
        drilled.tokens,
        drilled.interrupted,
        drilled.panicked,
        drilled.faults,
        drilled.store_calls
    );
    println!("0 slots leaked, 0 ledgers wrong");
    part.figure = json!({
        "runs": drilled.runs,
        "calls": drilled.calls,
        "admitted": drilled.admitted,
        "tokens": drilled.tokens,
        "interrupted": drilled.interrupted,
        "panicked": drilled.panicked,
        "store_calls": drilled.store_calls,
        "faults": drilled.faults,
        "slots_leaked": 0,
        "ledgers_wrong": 0,
    });
    part
}
