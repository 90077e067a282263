//! What the learners pay beside the best in hindsight: a table, and one line for machines.

use std::thread;

use anyhow::{Result, ensure};
use serde_json::json;
use throttlekit::{Clock, PreciseClock};
use throttlekit_conformance::learn::{self, Findings, Size, reserve};
use throttlekit_conformance::streams;

use crate::prove::run_released;

const SIZE: Size =
    Size { seeds: 10, horizons: &[100, 1_000, 10_000, 100_000], windows: 10_000, observations: 1_000_000 };
/// Planted bugs show on fewer seeds and windows.
const PLANTED_SIZE: Size =
    Size { seeds: 3, horizons: &[100, 1_000, 10_000], windows: 2_000, observations: 10_000 };

/// Worlds of streams with any reservations, and those in which each planted bug must show.
const WORLDS: u64 = 20_000;
const PLANTED_WORLDS: u64 = 1_000;

/// Runs every experiment and fails if a bar is missed or a planted bug is not found.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    ensure!(args.is_empty(), "prove learn takes nothing, not {}", args.join(" "));
    if cfg!(debug_assertions) {
        return run_released("learn", args);
    }
    let clock = PreciseClock::new();
    let begun = clock.now();
    let (found, reserved, (caught, missed)) = thread::scope(|scope| {
        let reserved = scope.spawn(|| reserve::examine(SIZE));
        let (found, planted) = (learn::examine(SIZE), examine_planted());
        (found, reserved.join().expect("an experiment does not panic"), planted)
    });
    let streams = examine_streams();
    tell(&found);
    tell_reserved(&reserved);
    println!("\n{WORLDS} worlds of streams with any reservations: {} broke the budget", streams.len());
    println!("\nplanted found {}/{}: {}", caught.len(), caught.len() + missed.len(), caught.join(", "));
    let seconds = clock.now().since(begun).as_secs_f64();
    println!("figure: {}", figure(&found, &reserved, streams.len(), caught.len(), missed.len(), seconds));
    let violations = [found.violations, reserved.violations, streams].concat();
    ensure!(violations.is_empty(), "not proved:\n  {}", violations.join("\n  "));
    ensure!(missed.is_empty(), "blind to the planted {}", missed.join(", "));
    Ok(())
}

/// The bugs of both kinds of learners and of streams: those found, and those missed.
fn examine_planted() -> (Vec<&'static str>, Vec<&'static str>) {
    let all = [
        learn::examine_planted(PLANTED_SIZE),
        reserve::examine_planted(PLANTED_SIZE),
        streams::examine_planted(PLANTED_WORLDS),
    ];
    let (found, missed): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    (found.concat(), missed.concat())
}

/// The first world of each half that broke the budget.
fn examine_streams() -> Vec<String> {
    thread::scope(|scope| {
        let half = |from: u64| scope.spawn(move || streams::examine(from..from + WORLDS / 2, None).err());
        let halves = [half(0), half(WORLDS / 2)];
        halves.into_iter().filter_map(|half| half.join().expect("a world does not panic")).collect()
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

fn figure(
    found: &Findings,
    reserved: &reserve::Findings,
    broken_worlds: usize,
    caught: usize,
    missed: usize,
    seconds: f64,
) -> serde_json::Value {
    let rounded = |value: f64| (value * 10_000.0).round() / 10_000.0;
    let most = |values: &mut dyn Iterator<Item = f64>| rounded(values.fold(0.0, f64::max));
    let at = |i: usize| most(&mut found.regret.iter().filter_map(|row| row.per_window.get(i).copied()));
    json!({
        "name": "prove-learn",
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
        "violations": found.violations.len() + reserved.violations.len() + broken_worlds,
        "stream_worlds": WORLDS,
        "planted": caught + missed,
        "planted_found": caught,
        "seconds": (seconds * 10.0).round() / 10.0,
    })
}
