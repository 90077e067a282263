//! Goodput compared with the best fixed ceiling, over every shape, load and size, for ours and for published
//! rules.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Part, Setup};
use crate::runner::in_parallel;
use throttlekit_verify::inference::tails::{
    Compared, LOADS, SERVERS, SHAPES, Scenario, TailSize, compare, find_seeded, ours,
};

const SIZE: TailSize = TailSize { seeds: 50, warm_up: (20_000, 250), judged: 20_000 };
const SMALL: TailSize = TailSize { seeds: 2, warm_up: (10_000, 250), judged: 10_000 };
/// The loads and numbers of servers of the small size: the middle of each.
const SMALL_LOADS: [f64; 2] = [0.8, 1.5];
const SMALL_SERVERS: [u32; 2] = [8, 32];

pub(super) fn run(setup: Setup) -> Result<Part> {
    let (loads, servers, size): (&[f64], &[u32], _) =
        if setup.small { (&SMALL_LOADS, &SMALL_SERVERS, SMALL) } else { (&LOADS, &SERVERS, SIZE) };
    let mut scenarios = Vec::new();
    for shape in SHAPES {
        for load in loads {
            scenarios.extend(servers.iter().map(|n| size.scenario(shape, *load, *n)));
        }
    }
    let compare = |at: u64| compare(&|_| ours(), scenarios[at as usize], size.seeds, true);
    let compared = in_parallel(scenarios.len() as u64, "scenarios", compare);
    tell(&compared);
    let (seeded, controls) = find_seeded();
    let figure = figure(&compared, size);
    let fails =
        controls.iter().map(|counterexample| format!("tails: fails without a seeded bug: {counterexample}"));
    let violations = compared
        .iter()
        .filter_map(Compared::violation)
        .map(|counterexample| format!("tails: {counterexample}"));
    Ok(Part { figure, broken: violations.chain(fails).collect(), seeded })
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

fn figure(compared: &[Compared], size: TailSize) -> Value {
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
    })
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}
