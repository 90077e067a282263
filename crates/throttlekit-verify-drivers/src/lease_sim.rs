//! The lease invariants over very many simulated clusters: their faults, and the time until each seeded bug
//! is found.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use throttlekit_sim::bugs::LeaseBug;
use throttlekit_sim::cluster::{self, Report};
use throttlekit_sim::faults::{Fault, Fired};

use crate::runner::{Options, Run, hunt, in_parallel};

const SEEDS: u64 = 10_000;
/// The number of seeds in which a seeded bug has to be found.
const SEEDED_SEEDS_MAX: u64 = 2_000;
const VIOLATIONS_SHOWN: usize = 5;

// The minimums of a full run; proportionally less for a shorter one, with a margin, because seeds differ.
const DECISIONS_MIN: u64 = 1_000_000_000;
const FIRINGS_MIN: u64 = 10_000;
const FAULTS_MIN: usize = 20;
const SEEDED_MIN: usize = 25;
const MEDIAN_MAX: u64 = 10;

/// The sum over the seeds without a seeded bug.
#[derive(Default)]
struct Sum {
    seeds: u64,
    decisions: u64,
    allowed: u64,
    windows: u64,
    fired: Fired,
    /// The number of runs that checked each invariant.
    invariants: BTreeMap<&'static str, u64>,
    /// By seed.
    violations: BTreeMap<u64, String>,
}

/// Verifies the invariants, or replays one seed.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    if options.has("--replay") {
        return replay(options.number("--replay", 0)?);
    }
    let (seeds, first) = (options.number("--cases", SEEDS)?, options.number("--seed", 0)?);
    let reports = in_parallel(seeds, "seeds", |seed| cluster::run(first + seed, None));
    let mut sum = Sum::default();
    (first..).zip(&reports).for_each(|(seed, report)| sum.add(seed, report));
    tell_sum(&sum);
    let (found, took) = hunt("seeds", |bug: LeaseBug| {
        let broken = |seed| cluster::run(seed, Some(bug)).broken.map(|broken| (seed + 1, broken.invariant));
        (0..SEEDED_SEEDS_MAX).find_map(broken)
    });
    run.seeded(found);
    judge(&sum, &took, run);
    Ok(figure(&sum, &took))
}

fn replay(seed: u64) -> Result<Value> {
    let report = cluster::replay(seed, None, &mut |line| println!("{line}"));
    println!(
        "trace {:016x}, {} decisions, judged by {}",
        report.trace_hash, report.decisions, report.invariant
    );
    match report.broken {
        Some(broken) => bail!("{broken}"),
        None => Ok(Value::Null),
    }
}

impl Sum {
    fn add(&mut self, seed: u64, report: &Report) {
        self.seeds += 1;
        self.decisions += report.decisions;
        self.allowed += report.allowed;
        self.windows += report.windows;
        self.fired.add(&report.fired);
        *self.invariants.entry(report.invariant).or_default() += 1;
        if let Some(broken) = &report.broken {
            self.violations.insert(seed, format!("seed {seed} ({}): {broken}", report.invariant));
        }
    }

    fn least_fired(&self) -> (&'static str, u64) {
        let fired = Fault::ALL.iter().map(|&fault| (fault.name(), self.fired.of(fault)));
        fired.min_by_key(|&(_, times)| times).expect("there are faults")
    }
}

fn tell_sum(sum: &Sum) {
    println!("{:<20}{:>12}  what it is", "fault", "fired");
    for &fault in Fault::ALL {
        println!("{:<20}{:>12}  {}", fault.name(), sum.fired.of(fault), fault.description());
    }
    println!("\n{:<20}{:>12}", "law", "runs judged");
    for (invariant, runs) in &sum.invariants {
        println!("{invariant:<20}{runs:>12}");
    }
    println!("and in every run: backed, grants, conservation, held, deny-exact, no-lost-waiter\n");
    println!(
        "{} seeds, {} decisions of which {} allowed, {} windows, {} violations\n",
        sum.seeds,
        sum.decisions,
        sum.allowed,
        sum.windows,
        sum.violations.len()
    );
    for (seed, violation) in sum.violations.iter().take(VIOLATIONS_SHOWN) {
        println!("  {violation}\n  cargo xtask verify lease-sim --replay {seed}");
    }
}

/// Returns the median number of seeds until each bug was found.
fn median(took: &[u64]) -> u64 {
    let mut seeds = took.to_vec();
    seeds.sort_unstable();
    seeds.get(seeds.len() / 2).copied().unwrap_or(u64::MAX)
}

fn figure(sum: &Sum, took: &[u64]) -> Value {
    json!({
        "seeds": sum.seeds,
        "decisions": sum.decisions,
        "allowed": sum.allowed,
        "windows": sum.windows,
        "fault_kinds": Fault::ALL.len(),
        "least_fired": sum.least_fired().1,
        "seeded_median_seeds": median(took),
    })
}

fn judge(sum: &Sum, took: &[u64], run: &mut Run) {
    run.violated(sum.violations.values().cloned());
    run.must(took.len() >= SEEDED_MIN && Fault::ALL.len() >= FAULTS_MIN, || {
        "too few faults or seeded bugs".into()
    });
    let median = median(took);
    run.must(median <= MEDIAN_MAX, || format!("the median seeded bug takes {median} seeds"));
    let (decisions, firings) = (scaled(DECISIONS_MIN, sum.seeds), scaled(FIRINGS_MIN, sum.seeds));
    run.must(sum.decisions >= decisions, || format!("{} decisions of at least {decisions}", sum.decisions));
    let (fault, times) = sum.least_fired();
    run.must(times >= firings, || format!("{fault} fired {times} times of at least {firings}"));
}

/// Returns the threshold for this many seeds.
fn scaled(full: u64, seeds: u64) -> u64 {
    if seeds >= SEEDS { full } else { full / SEEDS * seeds / 4 }
}
