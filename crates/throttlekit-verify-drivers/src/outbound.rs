//! Limits learned from responses: a table of the covered situations, the seeded bugs, and one `figure:` line.

use std::ops::Range;

use anyhow::Result;
use serde_json::{Value, json};

use crate::runner::{Options, Run, hunt, in_parallel};
use throttlekit_verify::outbound::{self, LearnReport};

const CASES: u64 = 1_000_000;
const SEEDED_CASES_MAX: u64 = 100_000;
/// Cases that a thread takes at once.
const CHUNK: u64 = 2_000;

/// Sends arbitrary responses to the production code. Fails on any violation, on a situation that never
/// occurred and on any seeded bug not found.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let (cases, seed) = (options.number("--cases", CASES)?, options.number("--seed", 0)?);
    let chunk = |at: u64| -> Range<u64> {
        let begin = seed.saturating_add(at * CHUNK);
        begin..begin.saturating_add(CHUNK.min(cases - at * CHUNK))
    };
    let mut report = LearnReport::default();
    for played in in_parallel(cases.div_ceil(CHUNK), "chunks of cases", |at| outbound::examine(chunk(at))) {
        match played {
            Ok(one) => report.add(&one),
            Err(violation) => run.violated([violation]),
        }
    }
    println!("{report:#?}\n");
    run.violated(report.missing().into_iter().map(|name| format!("{name}: no case had it")));
    let (found, took) = hunt("cases", |bug| outbound::find_seeded(Some(bug), SEEDED_CASES_MAX));
    run.seeded(found);
    Ok(json!({
        "cases": report.cases,
        "calls": report.calls,
        "responses": report.responses,
        "delayed": report.delayed,
        "probes": report.probes,
        "at_ceiling": report.at_ceiling,
        "seeded_cases_max": took.into_iter().max(),
    }))
}
