//! Labels are true on real engines: no decision beyond the limit is labeled `exact`, whatever the engine
//! loses, and all decisions of a healthy engine are.
//!
//! Each engine has a module with one function that runs its scenarios and returns a [`Row`] for each. A
//! scenario runs for a number of rounds without a bug, or for a few rounds with a seeded bug, which its own
//! checks must find.

mod postgres;
mod redis;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use throttlekit_conformance::bugs::Found;

use crate::label_row::{Row, print_head};
use crate::runner::{Options, Run, names};

const ROUNDS: u64 = 100;
/// One in which everything is spent before the fault, and one in which it is not.
const ROUNDS_SMALL: u64 = 2;
/// The number of rounds in which a seeded bug is searched for: some faults happen where they lose nothing.
const ROUNDS_SEEDED: u64 = 12;
const ENGINES: [&str; 2] = ["postgres", "redis"];

/// Returns the names of the seeded bugs of all engines.
pub(crate) fn seeded() -> Vec<&'static str> {
    Plan { rounds: 0, rounds_seeded: 0, small: false, engine: None }.bugs()
}

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Rounds of each scenario.
    pub(crate) rounds: u64,
    /// Rounds in which a seeded bug must be found; the search stops at the first that finds it.
    pub(crate) rounds_seeded: u64,
    /// True if only seconds are available.
    pub(crate) small: bool,
    /// The one engine to run on; without, all.
    engine: Option<&'static str>,
}

impl Plan {
    fn plays(&self, engine: &str) -> bool {
        self.engine.is_none_or(|only| only == engine)
    }

    /// Returns the names of the seeded bugs that must be found.
    fn bugs(&self) -> Vec<&'static str> {
        let bugs = [("postgres", names(postgres::Bug::ALL)), ("redis", redis::seeded())];
        bugs.into_iter().filter(|(engine, _)| self.plays(engine)).flat_map(|(_, bugs)| bugs).collect()
    }
}

/// Runs every scenario of every engine. Fails if a label was not true or a seeded bug was not found.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let small = options.has("--small");
    let engine = match options.value("--engine") {
        Some(name) => {
            let known = ENGINES.into_iter().find(|engine| *engine == name);
            Some(known.with_context(|| format!("--engine {name}: expected postgres or redis"))?)
        }
        None => None,
    };
    let rounds = options.number("--cases", if small { ROUNDS_SMALL } else { ROUNDS })?;
    let plan = Plan { rounds, rounds_seeded: ROUNDS_SEEDED, small, engine };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(verify(plan, run))
}

async fn verify(plan: Plan, run: &mut Run) -> Result<Value> {
    print_head();
    let mut rows: Vec<Row> = Vec::new();
    let mut redis_script_cost = None;
    if plan.plays("postgres") {
        rows.extend(postgres::rows(plan).await?);
    }
    if plan.plays("redis") {
        rows.extend(redis::rows(plan).await?);
        redis_script_cost = Some(redis::cost().await?);
    }
    let honest = rows.iter().filter(|row| row.seeded.is_none());
    run.violated(honest.clone().filter_map(Row::problem));
    let mut seeded = Found::default();
    let names = rows.iter().filter_map(|row| Some((row.seeded?, row.is_found())));
    names.for_each(|(name, found)| seeded.note(name, found));
    for name in plan.bugs() {
        let searched = seeded.found.contains(&name) || seeded.missed.contains(&name);
        run.must(searched, || format!("nobody looked for the seeded bug {name}"));
    }
    run.seeded(seeded);
    Ok(json!({
        "rounds_each": plan.rounds,
        "scenarios": honest.clone().count(),
        "exact_beyond_limit": honest.clone().map(|row| row.exact_beyond).sum::<u64>(),
        "rounds_over_limit": honest.clone().map(|row| row.over).sum::<u64>(),
        "healthy_exact_min": honest.map(Row::healthy_share).fold(1.0, f64::min),
        "redis_script_cost": redis_script_cost,
        "rows": rows.iter().map(Row::figure).collect::<Vec<_>>(),
    }))
}
