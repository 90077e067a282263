//! The cost of the learners compared with the best in hindsight: a table, and one `figure:` line.

use std::thread;

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit_conformance::bugs::Found;

use crate::runner::{Options, Run, rounded};
use throttlekit_verify::learn::{self, Findings, Size, reserve};
use throttlekit_verify::streams;

const SIZE: Size =
    Size { seeds: 10, horizons: &[100, 1_000, 10_000, 100_000], windows: 10_000, observations: 1_000_000 };
/// Seeded bugs show on fewer seeds and windows.
const SEEDED_SIZE: Size =
    Size { seeds: 3, horizons: &[100, 1_000, 10_000], windows: 2_000, observations: 10_000 };

/// Scenarios of streams with any reservations, and those in which each seeded bug must show.
const SCENARIOS: u64 = 20_000;
const SEEDED_SCENARIOS: u64 = 1_000;

/// Runs every experiment. Fails if a threshold is missed or a seeded bug is not found.
pub(crate) fn run(_: &Options<'_>, run: &mut Run) -> Result<Value> {
    let (found, reserved, seeded) = thread::scope(|scope| {
        let reserved = scope.spawn(|| reserve::examine(SIZE));
        let (found, seeded) = (learn::examine(SIZE), find_seeded());
        (found, reserved.join().expect("an experiment does not panic"), seeded)
    });
    let streams = examine_streams();
    tell(&found);
    tell_reserved(&reserved);
    println!("\n{SCENARIOS} scenarios of streams with any reservations: {} broke the budget", streams.len());
    let figure = figure(&found, &reserved);
    run.seeded(seeded);
    run.violated([found.violations, reserved.violations, streams].concat());
    Ok(figure)
}

/// Searches for the bugs of both kinds of learners and of streams.
fn find_seeded() -> Found {
    learn::find_seeded(SEEDED_SIZE)
        .merge(reserve::find_seeded(SEEDED_SIZE))
        .merge(streams::find_seeded(SEEDED_SCENARIOS))
}

/// Returns the first scenario of each half that broke the budget.
fn examine_streams() -> Vec<String> {
    thread::scope(|scope| {
        let half = |from: u64| scope.spawn(move || streams::examine(from..from + SCENARIOS / 2, None).err());
        let halves = [half(0), half(SCENARIOS / 2)];
        halves.into_iter().filter_map(|half| half.join().expect("a scenario does not panic")).collect()
    })
}

fn tell(found: &Findings) {
    print!("{:<24}", "regret per window at T");
    SIZE.horizons.iter().for_each(|windows| print!("{windows:>10}"));
    println!("{:>12}", "of envelope");
    for row in &found.regret {
        print!("{:<24}", format!("{:?}", row.family).to_lowercase());
        row.per_window.iter().for_each(|regret| print!("{regret:>10.3}"));
        println!("{:>12.4}", row.envelope_ratio);
    }
    println!("\n{:<24}{:>16}", "drifting demand", "paid/best fixed");
    for (family, ratio) in &found.drift {
        println!("{:<24}{ratio:>16.3}", format!("{family:?}").to_lowercase());
    }
    println!("\n{:<24}{:>20}{:>20}", "forecasts, worst seed", "perfect/clairvoyant", "bad/learner alone");
    for (family, perfect, bad) in &found.predictive {
        println!("{:<24}{perfect:>20.4}{bad:>20.4}", format!("{family:?}").to_lowercase());
    }
}

fn tell_reserved(found: &reserve::Findings) {
    print!("\n{:<24}", "reservations: regret at T");
    SIZE.horizons.iter().for_each(|streams| print!("{streams:>10}"));
    println!("{:>12}{:>12}{:>16}{:>20}", "of envelope", "8 at once", "perfect hints", "bad/learner alone");
    for row in &found.rows {
        print!("{:<24}", format!("{:?}", row.family).to_lowercase());
        row.per_stream.iter().for_each(|regret| print!("{regret:>10.3}"));
        print!("{:>12.4}{:>12.4}", row.envelope_ratio, row.open_ratio);
        println!("{:>11.2} D·G{:>21.4}", row.learning, row.bad_ratio);
    }
}

fn figure(found: &Findings, reserved: &reserve::Findings) -> Value {
    let most = |values: &mut dyn Iterator<Item = f64>| rounded(values.fold(0.0, f64::max), 4);
    let at = |i: usize| most(&mut found.regret.iter().filter_map(|row| row.per_window.get(i).copied()));
    json!({
        "families": found.predictive.len(),
        "regret_per_window_max": (0..SIZE.horizons.len()).map(at).collect::<Vec<_>>(),
        "envelope_ratio_max": most(&mut found.regret.iter().map(|row| row.envelope_ratio)),
        "drift_ratio_max": most(&mut found.drift.iter().map(|row| row.1)),
        "perfect_ratio_max": most(&mut found.predictive.iter().map(|row| row.1)),
        "bad_ratio_max": most(&mut found.predictive.iter().map(|row| row.2)),
        "reservation_families": reserved.rows.len(),
        "reservation_envelope_ratio_max": most(&mut reserved.rows.iter().map(|row| row.envelope_ratio)),
        "reservation_open_ratio_max": most(&mut reserved.rows.iter().map(|row| row.open_ratio)),
        "reservation_perfect_max": most(&mut reserved.rows.iter().map(|row| row.learning)),
        "reservation_bad_ratio_max": most(&mut reserved.rows.iter().map(|row| row.bad_ratio)),
        "stream_worlds": SCENARIOS,
    })
}
