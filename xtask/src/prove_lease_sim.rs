//! The lease laws over very many simulated fleets: what befell them, and how soon each seeded bug is found.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use throttlekit::{Clock, PreciseClock};
use throttlekit_sim::bugs::LeaseBug;
use throttlekit_sim::faults::{Fault, Fired};
use throttlekit_sim::fleet::{self, Report};

use crate::prove::run_released;

const SEEDS: u64 = 10_000;
/// Above this many seeds it pays to build with optimisation first.
const DEBUG_SEEDS_MAX: u64 = 200;
const THREADS: usize = 2;
/// How many seeds a seeded bug has to be found in.
const SEEDED_SEEDS_MAX: u64 = 2_000;
const VIOLATIONS_SHOWN: usize = 5;

// What a full run must show; a shorter one as much less, and a bit less still, because seeds differ.
const DECISIONS_MIN: u64 = 1_000_000_000;
const FIRINGS_MIN: u64 = 10_000;
const FAULTS_MIN: usize = 20;
const SEEDED_MIN: usize = 25;
const MEDIAN_MAX: u64 = 10;

/// Everything that came of the seeds without a seeded bug.
#[derive(Default)]
struct Sum {
    seeds: u64,
    decisions: u64,
    allowed: u64,
    windows: u64,
    fired: Fired,
    /// For each law how many runs it judged.
    laws: BTreeMap<&'static str, u64>,
    /// In order of their seeds.
    violations: BTreeMap<u64, String>,
}

/// A seeded bug, and the first seed that found it, by which law.
struct Hunt {
    bug: LeaseBug,
    found: Option<(u64, &'static str)>,
}

/// Proves them, or tells one seed again.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let seeds = match *args {
        [] => SEEDS,
        ["--seeds", n] => n.parse().with_context(|| format!("--seeds {n}: write a whole number"))?,
        ["--replay", seed] => return replay(seed),
        _ => bail!("prove lease-sim takes --seeds N or --replay SEED, not {}", args.join(" ")),
    };
    if cfg!(debug_assertions) && seeds > DEBUG_SEEDS_MAX {
        return run_released("lease-sim", args);
    }
    let clock = PreciseClock::new();
    let begun = clock.now();
    let sum = run_seeds(seeds);
    tell_sum(&sum);
    let hunts = hunt_all();
    tell_hunts(&hunts);
    println!("figure: {}", figure(&sum, &hunts, clock.now().since(begun)));
    judge(&sum, &hunts)
}

fn replay(seed: &str) -> Result<()> {
    let number = seed.parse().with_context(|| format!("--replay {seed}: write a whole number"))?;
    let report = fleet::replay(number, None, &mut |line| println!("{line}"));
    println!("trace {:016x}, {} decisions, judged by {}", report.trace_hash, report.decisions, report.law);
    match report.broken {
        Some(broken) => bail!("{broken}"),
        None => Ok(()),
    }
}

fn run_seeds(seeds: u64) -> Sum {
    let (next, sum) = (AtomicU64::new(0), Mutex::new(Sum::default()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            let report = fleet::run(seed, None);
            sum.lock().expect("a run does not panic").add(seed, &report);
        }
    };
    in_threads(&work, || {
        let sum = sum.lock().expect("a run does not panic");
        format!(
            "{} of {seeds} seeds, {} decisions, {} violations",
            sum.seeds,
            sum.decisions,
            sum.violations.len()
        )
    });
    sum.into_inner().expect("a run does not panic")
}

/// Works in all threads, and says how far it has come if someone watches.
fn in_threads(work: &(impl Fn() + Sync), progress: impl Fn() -> String) {
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            if io::stderr().is_terminal() {
                eprint!("\r{:<78}\r", progress());
            }
            thread::sleep(Duration::from_millis(50));
        }
    });
}

impl Sum {
    fn add(&mut self, seed: u64, report: &Report) {
        self.seeds += 1;
        self.decisions += report.decisions;
        self.allowed += report.allowed;
        self.windows += report.windows;
        self.fired.add(&report.fired);
        *self.laws.entry(report.law).or_default() += 1;
        if let Some(broken) = &report.broken {
            self.violations.insert(seed, format!("seed {seed} ({}): {broken}", report.law));
        }
    }

    fn least_fired(&self) -> (&'static str, u64) {
        let fired = Fault::ALL.iter().map(|&fault| (fault.name(), self.fired.of(fault)));
        fired.min_by_key(|&(_, times)| times).expect("there are faults")
    }
}

fn hunt_all() -> Vec<Hunt> {
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<Option<(u64, &'static str)>>> = Mutex::new(vec![None; LeaseBug::ALL.len()]);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&bug) = LeaseBug::ALL.get(at) else { return };
            let first = (0..SEEDED_SEEDS_MAX)
                .find_map(|seed| fleet::run(seed, Some(bug)).broken.map(|broken| (seed + 1, broken.law)));
            found.lock().expect("a run does not panic")[at] = first;
        }
    };
    in_threads(&work, || format!("seeded bugs: {} of {}", next.load(Ordering::Relaxed), LeaseBug::ALL.len()));
    let found = found.into_inner().expect("a run does not panic");
    LeaseBug::ALL.iter().zip(found).map(|(&bug, found)| Hunt { bug, found }).collect()
}

fn tell_sum(sum: &Sum) {
    println!("{:<20}{:>12}  what it is", "fault", "fired");
    for &fault in Fault::ALL {
        println!("{:<20}{:>12}  {}", fault.name(), sum.fired.of(fault), fault.description());
    }
    println!("\n{:<20}{:>12}", "law", "runs judged");
    for (law, runs) in &sum.laws {
        println!("{law:<20}{runs:>12}");
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
        println!("  {violation}\n  cargo xtask prove lease-sim --replay {seed}");
    }
}

fn tell_hunts(hunts: &[Hunt]) {
    println!("{:<28}{:>6}  {:<16}what it does", "seeded bug", "seeds", "found by");
    for Hunt { bug, found } in hunts {
        let (seeds, law) = found.map_or(("-".into(), "nothing"), |(seeds, law)| (seeds.to_string(), law));
        println!("{:<28}{seeds:>6}  {law:<16}{}", bug.name(), bug.description());
    }
    println!();
}

fn median(hunts: &[Hunt]) -> u64 {
    let mut seeds: Vec<u64> =
        hunts.iter().map(|hunt| hunt.found.map_or(u64::MAX, |(seeds, _)| seeds)).collect();
    seeds.sort_unstable();
    seeds[seeds.len() / 2]
}

fn figure(sum: &Sum, hunts: &[Hunt], took: Duration) -> Value {
    json!({
        "name": "prove-lease-sim",
        "seeds": sum.seeds,
        "decisions": sum.decisions,
        "allowed": sum.allowed,
        "windows": sum.windows,
        "violations": sum.violations.len(),
        "fault_kinds": Fault::ALL.len(),
        "least_fired": sum.least_fired().1,
        "seeded": hunts.len(),
        "seeded_found": hunts.iter().filter(|hunt| hunt.found.is_some()).count(),
        "seeded_median_seeds": median(hunts),
        "seconds": (took.as_secs_f64() * 10.0).round() / 10.0,
    })
}

fn judge(sum: &Sum, hunts: &[Hunt]) -> Result<()> {
    ensure!(sum.violations.is_empty(), "{} runs broke a law", sum.violations.len());
    let missed: Vec<_> =
        hunts.iter().filter(|hunt| hunt.found.is_none()).map(|hunt| hunt.bug.name()).collect();
    ensure!(missed.is_empty(), "seeded bugs not found: {}", missed.join(", "));
    ensure!(hunts.len() >= SEEDED_MIN && Fault::ALL.len() >= FAULTS_MIN, "too few faults or seeded bugs");
    ensure!(median(hunts) <= MEDIAN_MAX, "the median seeded bug takes {} seeds", median(hunts));
    let (decisions, firings) = (scaled(DECISIONS_MIN, sum.seeds), scaled(FIRINGS_MIN, sum.seeds));
    ensure!(sum.decisions >= decisions, "{} decisions, which should be {decisions}", sum.decisions);
    let (fault, times) = sum.least_fired();
    ensure!(times >= firings, "{fault} fired {times} times, which should be {firings}");
    Ok(())
}

/// A bar for so many seeds.
fn scaled(full: u64, seeds: u64) -> u64 {
    if seeds >= SEEDS { full } else { full / SEEDS * seeds / 4 }
}
