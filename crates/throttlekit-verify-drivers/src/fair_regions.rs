//! Shares of tenants of several regions in one budget, and the pool on every engine: tables, and one
//! `figure:` line.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use throttlekit_conformance::bugs::Found;
use throttlekit_conformance::invariants::Violation;
use throttlekit_conformance::regions::{PoolBug, PoolReport, find_pool_bug};
use throttlekit_verify::regions::{
    FairnessOutcome, RegionBug, RegionScenario, check_fairness, check_safety, find_region_bug,
};

use crate::runner::{Options, Run, Services, in_threads, progress, rounded, search};
use crate::stores::{addresses, engines};

const SCENARIOS: u64 = 100_000;
const TRACES: u64 = 20_000;
const SEEDED_SCENARIOS_MAX: u64 = 20_000;
/// Scenarios between two progress reports.
const CHUNK: u64 = 1_000;

/// The results of many scenarios.
#[derive(Default)]
struct Tally {
    scenarios: u64,
    violation: Option<Violation>,
    /// The maximum over all scenarios, and their sum.
    worst: f64,
    sum: f64,
}

/// Verifies fairness, safety and the pools. Fails on any violation and on any seeded bug not found.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let scenarios = options.number("--cases", SCENARIOS)?;
    let traces = options.number("--timelines", TRACES.min(scenarios))?;
    println!("{:<34}{:>10}{:>12}{:>10}{:>10}", "law", "worlds", "violations", "worst", "mean");
    let fair = tell("fair: part of the bound", many("fair", scenarios, |seed| check_fairness(seed, None)));
    let used = |(admitted, of): (u64, u64)| admitted as f64 / of.max(1) as f64;
    let safe =
        tell("safe: part of the limit", many("safe", scenarios, |seed| check_safety(seed, None).map(used)));
    let misplaced = |seed| Ok(FairnessOutcome::of(&RegionScenario::mixed(seed), None).misplaced());
    let mixed = tell("not promised: misplaced if mixed", many("mixed", scenarios / 10, misplaced));
    let pools = pools(traces, run.services())?;
    run.seeded(find_seeded()?);
    let rounded = |value: f64| rounded(value, 4);
    let figure = json!({
        "worlds": scenarios,
        "over_admissions": u64::from(safe.violation.is_some()),
        "fairness_violations": u64::from(fair.violation.is_some()),
        "bound_used_max": rounded(fair.worst),
        "bound_used_mean": rounded(fair.mean()),
        "limit_used_max": rounded(safe.worst),
        "mixed_misplaced_max": rounded(mixed.worst),
        "mixed_misplaced_mean": rounded(mixed.mean()),
        "pools": pools.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        "timelines_each": pools.iter().map(|(_, report)| report.traces).min(),
        "grants": pools.iter().map(|(_, report)| report.grants).sum::<u64>(),
    });
    run.violated(safe.violation.iter().chain(&fair.violation).map(Violation::to_string));
    Ok(figure)
}

/// Runs scenarios on all threads.
fn many(name: &str, scenarios: u64, play: impl Fn(u64) -> Result<f64, Violation> + Sync) -> Tally {
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let mut tally = Tally::default();
        loop {
            let begin = next.fetch_add(CHUNK, Relaxed);
            if begin >= scenarios || tally.violation.is_some() {
                return tally;
            }
            let end = (begin + CHUNK).min(scenarios);
            (begin..end).for_each(|seed| tally.note(play(seed)));
            done.fetch_add(end - begin, Relaxed);
        }
    };
    let progress = || format!("{name}: {} of {scenarios}", done.load(Relaxed));
    in_threads(&work, progress).into_iter().fold(Tally::default(), Tally::plus)
}

impl Tally {
    fn note(&mut self, came_to: Result<f64, Violation>) {
        self.scenarios += 1;
        match came_to {
            Ok(value) => {
                self.worst = self.worst.max(value);
                self.sum += value;
            }
            Err(violation) => self.violation = Some(violation),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            scenarios: self.scenarios + other.scenarios,
            violation: self.violation.or(other.violation),
            worst: self.worst.max(other.worst),
            sum: self.sum + other.sum,
        }
    }

    fn mean(&self) -> f64 {
        self.sum / self.scenarios.max(1) as f64
    }
}

fn tell(name: &str, tally: Tally) -> Tally {
    let violations = u64::from(tally.violation.is_some());
    println!("{name:<34}{:>10}{violations:>12}{:>10.3}{:>10.4}", tally.scenarios, tally.worst, tally.mean());
    tally
}

/// Compares the pool of every engine with the rule.
fn pools(traces: u64, services: Services) -> Result<Vec<(&'static str, PoolReport)>> {
    let engines = engines();
    let addresses = addresses(&engines, services)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!(
        "\n{:<12}{:>10}{:>10}{:>10}{:>10}{:>10}{:>13}",
        "pool", "timelines", "grants", "partial", "refused", "windows", "differences"
    );
    let mut played = Vec::new();
    for (engine, address) in engines.iter().zip(addresses) {
        let mut report = PoolReport::default();
        for begin in (0..traces).step_by(CHUNK as usize) {
            let seeds: Range<u64> = begin..(begin + CHUNK).min(traces);
            progress(engine.name, seeds.end, traces);
            match runtime.block_on((engine.pools)(address.clone(), seeds)) {
                Ok(played) => report = report.plus(played),
                Err(violation) => bail!("the pool on {} differs from the rule: {violation}", engine.name),
            }
        }
        let PoolReport { traces, grants, partial, refused, windows } = report;
        println!(
            "{:<12}{traces:>10}{grants:>10}{partial:>10}{refused:>10}{windows:>10}{:>13}",
            engine.name, 0
        );
        played.push((engine.name, report));
    }
    Ok(played)
}

/// Searches for the bugs of pools and of regions.
fn find_seeded() -> Result<Found> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let pools =
        search("worlds", PoolBug::ALL, |bug| runtime.block_on(find_pool_bug(bug, SEEDED_SCENARIOS_MAX)));
    Ok(pools.merge(search("worlds", RegionBug::ALL, |bug| find_region_bug(bug, SEEDED_SCENARIOS_MAX))))
}
