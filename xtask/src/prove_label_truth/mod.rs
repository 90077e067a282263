//! Labels are true on real engines: no decision beyond the limit is labelled `exact`, whatever the engine loses, and a
//! healthy engine's decisions all are.
//!
//! Each engine has a module with one function that plays its scenarios and returns a [`Row`] for each. A scenario is played
//! for a number of rounds as it is, or for a few rounds with a seeded bug, which its own checks must find.

mod postgres;
mod redis;
mod row;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use throttlekit::{Clock, PreciseClock};

use crate::verify::list;
use row::{Row, print_head};

const ROUNDS: u64 = 100;
/// One in which all is spent before the fault, and one in which it is not.
const ROUNDS_SMALL: u64 = 2;
/// A seeded bug is looked for in as many rounds: some faults fall where they lose nothing.
const ROUNDS_SEEDED: u64 = 12;
/// The engines, each with the least number of its seeded bugs.
const ENGINES: [(&str, usize); 2] = [("postgres", 5), ("redis", 8)];

/// Returns the names of the seeded bugs of all engines.
pub(crate) fn seeded() -> Vec<&'static str> {
    [list::names(postgres::Bug::ALL), redis::seeded()].concat()
}

/// How much to play.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Rounds of each scenario.
    pub(crate) rounds: u64,
    /// Rounds in which a seeded bug must be found; the first that finds it ends the search.
    pub(crate) rounds_seeded: u64,
    /// Whether seconds are all there is.
    pub(crate) small: bool,
    /// The one engine to play on; without, all.
    engine: Option<&'static str>,
}

impl Plan {
    fn plays(&self, engine: &str) -> bool {
        self.engine.is_none_or(|only| only == engine)
    }
}

/// Plays every scenario of every engine, and fails if a label was not true or a seeded bug was not found.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let plan = plan_from(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(prove(plan))
}

fn plan_from(args: &[&str]) -> Result<Plan> {
    let mut plan = Plan { rounds: ROUNDS, rounds_seeded: ROUNDS_SEEDED, small: false, engine: None };
    let mut rest = args;
    while let [first, tail @ ..] = rest {
        rest = match (*first, tail) {
            ("--small", tail) => {
                (plan.rounds, plan.small) = (ROUNDS_SMALL, true);
                tail
            }
            ("--rounds", [n, tail @ ..]) => {
                plan.rounds = n.parse().with_context(|| format!("--rounds {n}: write a whole number"))?;
                tail
            }
            ("--engine", [name, tail @ ..]) => {
                let known = ENGINES.iter().find(|(engine, _)| engine == name);
                plan.engine = Some(known.with_context(|| format!("--engine {name}: postgres or redis"))?.0);
                tail
            }
            _ => bail!(
                "prove label-truth takes --rounds N or --small, and --engine NAME, not {}",
                args.join(" ")
            ),
        };
    }
    Ok(plan)
}

async fn prove(plan: Plan) -> Result<()> {
    let clock = PreciseClock::new();
    let begun = clock.now();
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
    let problems: Vec<String> = rows.iter().filter_map(Row::problem).collect();
    let seeded: Vec<&Row> = rows.iter().filter(|row| row.seeded.is_some()).collect();
    let found = seeded.iter().filter(|row| row.is_found()).count();
    let honest = rows.iter().filter(|row| row.seeded.is_none());
    let figure = json!({
        "name": "prove-label-truth",
        "rounds_each": plan.rounds,
        "scenarios": rows.len() - seeded.len(),
        "exact_beyond_limit": honest.clone().map(|row| row.exact_beyond).sum::<u64>(),
        "rounds_over_limit": honest.clone().map(|row| row.over).sum::<u64>(),
        "healthy_exact_min": honest.map(Row::healthy_share).fold(1.0, f64::min),
        "seeded": seeded.len(),
        "found": found,
        "redis_script_cost": redis_script_cost,
        "seconds": clock.now().since(begun).as_secs(),
        "rows": rows.iter().map(Row::figure).collect::<Vec<_>>(),
    });
    println!("figure: {figure}");
    ensure!(problems.is_empty(), "not proved: {}", problems.join("; "));
    let expected: usize = ENGINES.iter().filter(|(engine, _)| plan.plays(engine)).map(|(_, bugs)| bugs).sum();
    ensure!(seeded.len() >= expected, "{} seeded bugs, not {expected}", seeded.len());
    Ok(())
}
