//! Models of slots and of a fleet's ceiling explored in full, a story for each assumption that is removed, and very many
//! simulated fleets.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit::{Clock, PreciseClock};
use throttlekit_sim::models::case::Case;
use throttlekit_sim::models::counter_examples::CounterExample;
use throttlekit_sim::models::{ceiling, fold, table};
use throttlekit_sim::slots::{self, Fault, Fired, SlotBug};

use super::Part;

const THREADS: usize = 2;
const SEEDS: u64 = 2_400;
const SEEDS_SMALL: u64 = 60;
/// How many seeds a seeded bug has to be found in.
const HUNT_SEEDS_MAX: u64 = 600;
/// How often each fault must fire in a full run.
const FIRINGS_MIN: u64 = 500;
const SEEDED_MIN: usize = 10;
/// Fewer states of production code than this would not be the search that is promised.
const STATES_MIN: usize = 10_000_000;
/// A small run leaves published worlds of more states out.
const SMALL_STATES_MAX: usize = 100_000;
const VIOLATIONS_SHOWN: usize = 5;

pub(super) fn run(small: bool) -> Result<Part> {
    let mut part = Part::default();
    let explored = explore(small, &mut part.broken);
    let stories = tell_stories(&mut part.broken);
    let simulated = simulate(small, &mut part.broken);
    let seeded = hunt(&mut part.broken, small);
    part.figure =
        json!({ "explored": explored, "removed": stories, "simulated": simulated, "seeded": seeded });
    Ok(part)
}

fn explore(small: bool, broken: &mut Vec<String>) -> Value {
    println!("{:<15}{:<50}{:>10}{:>7}{:>9}{:>7}", "law", "world", "states", "depth", "seconds", "bound");
    let published = ceiling::cases().into_iter().filter(|case| !small || case.states < SMALL_STATES_MAX);
    let published = look(published.collect(), broken);
    let mut cases: Vec<Case> = fold::small().into_iter().chain(table::small()).collect();
    if !small {
        cases.extend(fold::large().into_iter().chain(table::large()));
    }
    let production = look(cases, broken);
    if !small && production < STATES_MIN {
        broken.push(format!("{production} states were explored, and {STATES_MIN} are promised"));
    }
    json!({ "published_states": published, "production_states": production })
}

/// Explores them, and says how many states they had.
fn look(cases: Vec<Case>, broken: &mut Vec<String>) -> usize {
    let clock = PreciseClock::new();
    let mut states = 0;
    for case in cases {
        let begun = clock.now();
        let found = case.explore(THREADS);
        let seconds = clock.now().since(begun).as_secs_f64();
        println!(
            "{:<15}{:<50}{:>10}{:>7}{seconds:>9.1}{:>7}",
            case.law, case.name, found.states, found.depth, case.bound
        );
        states += found.states;
        broken.extend(case.wrong(&found));
    }
    states
}

fn tell_stories(broken: &mut Vec<String>) -> Value {
    let stories: Vec<CounterExample> =
        [ceiling::counter_examples(), fold::counter_examples(), table::counter_examples()].concat();
    println!("\n{:<62}breaks", "without");
    for one in &stories {
        let steps =
            one.story.as_ref().map_or("nothing".into(), |story| format!("after {} steps", story.len() - 1));
        println!("{:<62}{}, {steps}", one.removed, one.law);
        if one.story.is_none() {
            broken.push(format!("nothing breaks without: {}", one.removed));
        }
    }
    let found = stories.iter().filter(|one| one.story.is_some()).count();
    json!({ "found": found, "of": stories.len() })
}

/// Everything that came of the seeds.
#[derive(Default)]
struct Sum {
    decisions: u64,
    admitted: u64,
    fired: Fired,
    violations: Vec<String>,
}

fn simulate(small: bool, broken: &mut Vec<String>) -> Value {
    let seeds = if small { SEEDS_SMALL } else { SEEDS };
    let (next, sum) = (AtomicU64::new(0), Mutex::new(Sum::default()));
    in_threads(&|| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            let report = slots::run(seed, None, &mut |_| ());
            let mut sum = sum.lock().expect("a run does not panic");
            sum.decisions += report.decisions;
            sum.admitted += report.admitted;
            sum.fired.add(&report.fired);
            if let Some((law, how)) = report.broken {
                sum.violations.push(format!("seed {seed}, {law}: {how}"));
            }
        }
    });
    let sum = sum.into_inner().expect("a run does not panic");
    println!("\n{:<22}{:>9}  what it is", "fault", "fired");
    for &fault in Fault::ALL {
        println!("{:<22}{:>9}  {}", fault.name(), sum.fired.of(fault), fault.description());
    }
    let (Sum { decisions, admitted, .. }, violations) = (&sum, sum.violations.len());
    println!(
        "\n{seeds} seeds, {decisions} asks of which {admitted} were admitted, {violations} violations\n"
    );
    broken.extend(sum.violations.iter().take(VIOLATIONS_SHOWN).cloned());
    let fired = Fault::ALL.iter().map(|&fault| (sum.fired.of(fault), fault.name()));
    let (least, fault) = fired.min().expect("there are faults");
    if least < if small { 1 } else { FIRINGS_MIN } {
        broken.push(format!("{fault} fired {least} times in {seeds} seeds"));
    }
    json!({
        "seeds": seeds,
        "asks": decisions,
        "violations": violations,
        "fault_kinds": Fault::ALL.len(),
        "least_fired": least,
    })
}

fn in_threads(work: &(impl Fn() + Sync)) {
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
}

/// Hunts every seeded bug. A small run stops where even a full one seldom has to go on.
fn hunt(broken: &mut Vec<String>, small: bool) -> Value {
    let seeds_max = if small { HUNT_SEEDS_MAX / 2 } else { HUNT_SEEDS_MAX };
    let (next, found) = (AtomicUsize::new(0), Mutex::new(vec![None; SlotBug::ALL.len()]));
    in_threads(&|| {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&bug) = SlotBug::ALL.get(at) else { return };
            let first = slots::hunt(bug, seeds_max);
            found.lock().expect("a run does not panic")[at] = first;
        }
    });
    let found = found.into_inner().expect("a run does not panic");
    println!("{:<26}{:>6}  {:<16}what it does", "seeded bug", "seeds", "found by");
    for (bug, found) in SlotBug::ALL.iter().zip(&found) {
        let (seeds, law) =
            found.map_or(("-".into(), "nothing"), |(seeds, law): (u64, _)| (seeds.to_string(), law));
        println!("{:<26}{seeds:>6}  {law:<16}{}", bug.name(), bug.description());
        if found.is_none() {
            broken.push(format!("a seeded bug was not found: {}", bug.name()));
        }
    }
    if found.len() < SEEDED_MIN {
        broken.push(format!("{} bugs are seeded, and {SEEDED_MIN} are promised", found.len()));
    }
    let mut seeds: Vec<u64> = found.iter().map(|found| found.map_or(u64::MAX, |(seeds, _)| seeds)).collect();
    seeds.sort_unstable();
    let median = seeds[seeds.len() / 2];
    json!({ "found": found.iter().flatten().count(), "of": found.len(), "median_seeds": median })
}
