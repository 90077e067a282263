//! Goodput beside the best fixed ceiling, over every shape, load and size, for ours and for published rules.

use std::io::{self, IsTerminal};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit_conformance::bugs::Found;
use throttlekit_conformance::inference::tails::{
    Compared, LOADS, SERVERS, SHAPES, Scenario, TailSize, compare, find_seeded, ours,
};

use crate::parts::Part;

const SIZE: TailSize = TailSize { seeds: 50, warm_up: (20_000, 250), judged: 20_000 };
const SMALL: TailSize = TailSize { seeds: 2, warm_up: (10_000, 250), judged: 10_000 };
/// The loads and numbers of servers of the small size: the middle of each.
const SMALL_LOADS: [f64; 2] = [0.8, 1.5];
const SMALL_SERVERS: [u32; 2] = [8, 32];
const THREADS: usize = 2;

pub(super) fn run(small: bool) -> Result<Part> {
    let (loads, servers, size): (&[f64], &[u32], _) =
        if small { (&SMALL_LOADS, &SMALL_SERVERS, SMALL) } else { (&LOADS, &SERVERS, SIZE) };
    let mut scenarios = Vec::new();
    for shape in SHAPES {
        for load in loads {
            scenarios.extend(servers.iter().map(|n| size.scenario(shape, *load, *n)));
        }
    }
    let compared = compare_all(&scenarios, size.seeds);
    tell(&compared);
    let (seeded, controls) = find_seeded();
    println!("{}", seeded.line());
    let figure = figure(&compared, size, &seeded);
    let blind = seeded.check().err().map(|missed| format!("tails: {missed}"));
    let fails = controls.iter().map(|story| format!("tails: fails without a seeded bug: {story}"));
    let violations = compared.iter().filter_map(Compared::violation).map(|story| format!("tails: {story}"));
    Ok(Part { figure, broken: violations.chain(blind).chain(fails).collect() })
}

/// Compares on two threads, with progress where somebody watches.
fn compare_all(scenarios: &[Scenario], seeds: u64) -> Vec<Compared> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
            let compared = compare(&|_| ours(), *scenario, seeds, true);
            let mut done = done.lock().expect("no comparison panics");
            done.push(compared);
            if io::stderr().is_terminal() || done.len().is_multiple_of(12) {
                eprintln!("{} of {} scenarios", done.len(), scenarios.len());
            }
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| _ = scope.spawn(work)));
    let mut compared = done.into_inner().expect("no comparison panics");
    compared.sort_by_key(|row| scenarios.iter().position(|scenario| *scenario == row.scenario));
    compared
}

fn tell(compared: &[Compared]) {
    println!(
        "goodput as a part of the best fixed ceiling's, worst seed, p99 as a multiple, ceiling in servers"
    );
    print!("{:<16}{:>5}{:>5}{:>6}{:>9}", "service times", "load", "n", "best", "goodput");
    compared[0].results.iter().for_each(|result| print!("  {:<23}", result.name));
    println!();
    for row in compared {
        let Scenario { shape, load, servers, .. } = row.scenario;
        print!("{:<16}{load:>5}{servers:>5}{:>6}{:>9.3}", shape.name(), row.best, row.goodput);
        for result in &row.results {
            print!("  {:.3} {:.3} {:>5.2} {:>5.2}", result.goodput, result.worst, result.p99, result.limit);
        }
        println!("{}", row.violation().map_or(String::new(), |_| " <".into()));
    }
}

fn figure(compared: &[Compared], size: TailSize, seeded: &Found) -> Value {
    let rules = (0..compared[0].results.len()).map(|rule| {
        let of = |load: fn(f64) -> bool| {
            compared.iter().filter(move |row| load(row.scenario.load)).map(move |row| &row.results[rule])
        };
        let least = |values: &mut dyn Iterator<Item = f64>| rounded(values.fold(f64::INFINITY, f64::min));
        let held = compared.iter().filter(|row| row.results[rule].check(row.scenario.load).is_ok()).count();
        let summary = json!({
            "goodput_below_min": least(&mut of(|load| load < 1.0).map(|result| result.goodput)),
            "goodput_from_min": least(&mut of(|load| load >= 1.0).map(|result| result.goodput)),
            "worst_seed": least(&mut of(|_| true).map(|result| result.worst)),
            "p99_max": rounded(of(|load| load >= 1.5).map(|result| result.p99).fold(0.0, f64::max)),
            "held": held,
        });
        (compared[0].results[rule].name.to_owned(), summary)
    });
    json!({
        "scenarios": compared.len(),
        "seeds": size.seeds,
        "rules": rules.collect::<serde_json::Map<_, _>>(),
        "violations": compared.iter().filter(|row| row.violation().is_some()).count(),
        "seeded": seeded.total(),
        "seeded_found": seeded.found.len(),
    })
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}
