//! The use of a token budget through the engine of the server, where calls send no cost.
//!
//! Callers of one key send twice the budget. Each runs one stream after another: it is admitted, debits chunk by chunk,
//! and is released with what it used. Denied callers wait as the server advises. In each window
//!
//! > 0.95 · budget ≤ used ≤ budget + g − 1,
//!
//! where no debit has more than g tokens. So with debits of single tokens no budget is exceeded at all. Beside it, the
//! same calls with the same estimate for all of them.

mod books;
mod run;
mod workload;

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit_conformance::bugs::Found;

use crate::runner::rounded;
use books::Seen;
use run::{Scenario, run_all};
use workload::{Calls, callers};

/// The estimate that is the same for all calls.
const STATIC: u64 = 5_000;
const USED_MIN: f64 = 0.95;
/// Tokens of a debit: as interfaces stream them, and as the gateway's mock model does.
const CHUNKS: [u64; 2] = [1, 8];

throttlekit_conformance::bugs! {
    /// A bug at the boundary between the callers and the engine.
    pub(crate) enum ServerBug {
        ReservesTheSameForAll: "Each call reserves 5,000 tokens, whatever was learned.",
        ReservesNothing: "A call reserves one token, and is charged when it ends.",
        KeepsReservations: "What was reserved and not used stays charged.",
    }
}

/// The tokens that a call reserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Estimate {
    /// The same for each call.
    Static(u64),
    /// An estimate that the server has learned.
    Learned,
    /// The same, with hints: the class, the input, and the maximum output.
    Hinted,
}

impl Estimate {
    fn label(self) -> &'static str {
        match self {
            Self::Static(_) => "static 5000",
            Self::Learned => "learned",
            Self::Hinted => "learned, hints",
        }
    }
}

/// The size of the runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) budget: u64,
    pub(super) windows: usize,
}

/// One run and its result.
struct Row {
    scenario: Scenario,
    seen: Seen,
}

/// The runs of all callers.
pub(super) struct Through {
    rows: Vec<Row>,
    size: Size,
}

impl Through {
    /// Runs every estimate on every kind of calls.
    pub(super) fn run(size: Size) -> Result<Self> {
        let Size { budget, windows } = size;
        let mut scenarios = Vec::new();
        for chunk in CHUNKS {
            for calls in Calls::ALL {
                for estimate in [Estimate::Static(STATIC), Estimate::Learned, Estimate::Hinted] {
                    scenarios.push(Scenario { calls, estimate, chunk, budget, windows, bug: None });
                }
            }
        }
        let seen = run_all(&scenarios)?;
        let rows = scenarios.into_iter().zip(seen).map(|(scenario, seen)| Row { scenario, seen }).collect();
        Ok(Self { rows, size })
    }

    pub(super) fn tell(&self) {
        let Size { budget, windows } = self.size;
        println!(
            "\nthrough the engine of the server: {budget} tokens a window, {windows} windows, {} callers",
            callers(budget)
        );
        println!(
            "{:<8}{:>6}  {:<15}{:>10}{:>9}{:>12}{:>7}{:>17}{:>11}",
            "calls",
            "chunk",
            "estimate",
            "reserved",
            "used",
            "least used",
            "over",
            "over, delivered",
            "cut short"
        );
        for Row { scenario, seen } in &self.rows {
            let Scenario { calls, estimate, chunk, .. } = scenario;
            println!(
                "{:<8}{chunk:>6}  {:<15}{:>10.1}{:>9.4}{:>12.4}{:>7}{:>17}{:>11.1}",
                calls.label(),
                estimate.label(),
                seen.reserved,
                seen.used,
                seen.used_min,
                seen.over,
                seen.over_delivered,
                seen.cut_short
            );
        }
    }

    pub(super) fn violations(&self) -> Vec<String> {
        let mut broken: Vec<String> = self.rows.iter().filter_map(Row::broken).collect();
        let used = |estimate: fn(Estimate) -> bool| {
            self.rows.iter().filter(move |row| estimate(row.scenario.estimate)).map(|row| row.seen.used)
        };
        let learned = used(|one| !matches!(one, Estimate::Static(_))).fold(f64::INFINITY, f64::min);
        if used(|one| matches!(one, Estimate::Static(_))).any(|part| part >= learned) {
            broken.push("a static estimate uses as much of the budget: the comparison shows nothing".into());
        }
        broken
    }

    pub(super) fn figure(&self) -> Value {
        let rows = |learned: bool| {
            self.rows
                .iter()
                .filter(move |row| learned != matches!(row.scenario.estimate, Estimate::Static(_)))
        };
        let used_min = |learned: bool| {
            rounded(rows(learned).map(|row| row.seen.used_min).fold(f64::INFINITY, f64::min), 4)
        };
        let used = |learned: bool| {
            let all: Vec<f64> = rows(learned).map(|row| row.seen.used).collect();
            rounded(all.iter().sum::<f64>() / all.len() as f64, 4)
        };
        let over = |chunk: u64| {
            rows(true).filter(|row| row.scenario.chunk == chunk).map(|row| row.seen.over).max().unwrap_or(0)
        };
        json!({
            "budget": self.size.budget,
            "windows": self.size.windows,
            "learned_used": used(true),
            "learned_used_min": used_min(true),
            "learned_over_by_token": over(CHUNKS[0]),
            "learned_over_by_chunk": over(CHUNKS[1]),
            "static_used": used(false),
            "static_used_min": used_min(false),
        })
    }
}

impl Row {
    /// Returns the first violation.
    fn broken(&self) -> Option<String> {
        let Self { scenario, seen } = self;
        let Scenario { calls, estimate, chunk, .. } = scenario;
        let over_max = chunk - 1;
        let what = if seen.miscounted {
            "the server counted other tokens".to_owned()
        } else if seen.over > over_max {
            format!("{} tokens beyond the budget, at most {over_max} are allowed", seen.over)
        } else if !matches!(estimate, Estimate::Static(_)) && seen.used_min < USED_MIN {
            format!("{:.4} of a window used, at least {USED_MIN} must be", seen.used_min)
        } else {
            return None;
        };
        Some(format!("server, {} calls, chunks of {chunk}, {}: {what}", calls.label(), estimate.label()))
    }
}

/// Searches for the seeded bugs in the runs of one kind of calls.
pub(super) fn find_seeded(size: Size) -> Result<Found> {
    let Size { budget, windows } = size;
    let scenario = |bug: &ServerBug| Scenario {
        calls: Calls::Alike,
        estimate: Estimate::Learned,
        chunk: CHUNKS[0],
        budget,
        windows,
        bug: Some(*bug),
    };
    let scenarios: Vec<Scenario> = ServerBug::ALL.iter().map(scenario).collect();
    let seen = run_all(&scenarios)?;
    let mut outcome = Found::default();
    for ((bug, scenario), seen) in ServerBug::ALL.iter().zip(scenarios).zip(seen) {
        let broken = Row { scenario, seen }.broken();
        println!("{:<28}{}", bug.name(), broken.as_deref().unwrap_or("not found"));
        outcome.note(bug.name(), broken.is_some());
    }
    Ok(outcome)
}
