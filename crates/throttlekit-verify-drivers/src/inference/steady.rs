//! The distance of an inferred ceiling from the best, and the time until it follows when the best moves.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Part, Setup};
use throttlekit_verify::inference::{
    Findings, Large, RECOVERY_BAR, Recovery, Row, Settling, Size, Stretch, examine, examine_aimd,
    examine_controls, examine_disturbances, examine_large, find_seeded, first_implementation, shipped,
};

const SIZE: Size = Size { seeds: 40, completions: 8_000 };
const SMALL: Size = Size { seeds: 3, completions: 4_000 };

/// Denials per thousand for which the first implementation is run.
const DENIALS: [u64; 5] = [0, 10, 50, 100, 200];

pub(crate) fn run(setup: Setup) -> Result<Part> {
    let size = if setup.small { SMALL } else { SIZE };
    let found = examine(&shipped, size);
    let large = examine_large(&shipped, Size { seeds: size.seeds.min(11), ..size });
    let seeded = find_seeded();
    let first = DENIALS.map(first_implementation);
    let (disturbances, disturbed) = examine_disturbances(&shipped, size);
    let (aimd, astray) = examine_aimd(Size { seeds: size.seeds.min(10), ..size });
    let controls = examine_controls();
    tell_settling(&found);
    tell_recovery(&found);
    tell_rows("with disturbances, jittered", &disturbances);
    tell_rows("aimd, jittered", &aimd);
    tell_large(&large);
    println!("\nthe first implementation, {DENIALS:?} of a thousand denied elsewhere: {first:?}");
    println!("{} scenarios, {} broke an invariant", found.scenarios, found.violations.len());
    println!("controls that fail too: {}", controls.len());
    let mut figure = figure(&found, &large, first);
    figure["weather"] = disturbances.iter().map(row_figure).collect();
    figure["aimd"] = aimd.iter().map(row_figure).collect();
    let broken = found.violations.iter().map(|counterexample| format!("inference: {counterexample}"));
    let broken = broken.chain([disturbed, astray, controls].into_iter().flatten()).collect();
    Ok(Part { figure, broken, seeded })
}

fn tell_settling(found: &Findings) {
    println!(
        "{:<22}{:>16}{:>12}{:>12}{:>10}{:>8}",
        "settled", "of the best", "near", "throughput", "latency", ""
    );
    for row in &found.settling {
        let (low, high) = bounds(row, |stretch| stretch.mean);
        let told = if row.service.settling_is_judged() { "" } else { "told" };
        println!(
            "{:<22}{:>16}{:>12.2}{:>12.3}{:>10.2}{told:>8}",
            format!("{:?} {:?}", row.discipline, row.service).to_lowercase(),
            format!("{low:.2}–{high:.2}"),
            row.stretches.iter().map(|stretch| stretch.near).sum::<f64>() / row.stretches.len() as f64,
            bounds(row, |stretch| stretch.throughput).0,
            bounds(row, |stretch| stretch.latency).1,
        );
    }
}

fn tell_recovery(found: &Findings) {
    println!(
        "\n{:<52}{:>10}{:>8}{:>8}{:>8}{:>8}{:>8}",
        "recovered, in completions", "≤ 200", "half", "0.9", "0.99", "most", ""
    );
    for row in &found.recovery {
        let told = if row.is_judged() { "" } else { "told" };
        println!(
            "{:<52}{:>9.1}%{:>8}{:>8}{:>8}{:>8}{told:>8}",
            format!("{:?}, {}", row.service, row.step).to_lowercase(),
            100.0 * row.within_bar(),
            count(row.quantile(0.5)),
            count(row.quantile(0.9)),
            count(row.quantile(0.99)),
            count(row.quantile(1.0)),
        );
    }
}

fn tell_rows(title: &str, rows: &[Row]) {
    println!("\n{title:<28}{:>10}{:>16}{:>8}{:>12}{:>8}", "mean", "each", "near", "throughput", "least");
    for row in rows {
        let (low, high) = least_and_most(&row.stretches, |stretch| stretch.mean);
        println!(
            "{:<28}{:>10.2}{:>16}{:>8.2}{:>12.3}{:>8.3}",
            row.name,
            row.mean(|stretch| stretch.mean),
            format!("{low:.2}–{high:.2}"),
            row.mean(|stretch| stretch.near),
            row.mean(|stretch| stretch.throughput),
            least_and_most(&row.stretches, |stretch| stretch.throughput).0,
        );
    }
}

fn row_figure(row: &Row) -> Value {
    let rounded = |value: f64| (value * 1_000.0).round() / 1_000.0;
    let (low, high) = least_and_most(&row.stretches, |stretch| stretch.mean);
    json!({
        "name": row.name,
        "mean": rounded(row.mean(|stretch| stretch.mean)),
        "least": rounded(low),
        "most": rounded(high),
        "throughput": rounded(row.mean(|stretch| stretch.throughput)),
    })
}

fn tell_large(large: &[Large]) {
    println!("\nlarge capacities, told: half of the scenarios recover within so many completions (rounds)");
    for Large { capacity, stretch, medians } in large {
        println!("{capacity:>5}: settled at {:.2}, throughput {:.3}", stretch.mean, stretch.throughput);
        for (step, took) in medians {
            let rounds = took.map_or(f64::NAN, |took| took as f64 / f64::from(*capacity));
            println!("{:>8}{step:<40}{:>8} ({rounds:.1})", "", count(*took));
        }
    }
}

fn count(took: Option<u64>) -> String {
    took.map_or("never".into(), |took| took.to_string())
}

/// Returns the minimum and the maximum over all runs of a shape.
fn bounds(row: &Settling, of: impl Fn(&Stretch) -> f64) -> (f64, f64) {
    least_and_most(&row.stretches, of)
}

fn least_and_most(stretches: &[Stretch], of: impl Fn(&Stretch) -> f64) -> (f64, f64) {
    let each = stretches.iter().map(of);
    each.fold((f64::INFINITY, 0.0), |(low, high), value| (low.min(value), f64::max(high, value)))
}

fn figure(found: &Findings, large: &[Large], first: [u32; 5]) -> Value {
    let rounded = |value: f64| (value * 1_000.0).round() / 1_000.0;
    let judged = || found.settling.iter().filter(|row| row.service.settling_is_judged());
    let worst = |of: fn(&Stretch) -> f64| judged().map(move |row| bounds(row, of));
    let deviation = worst(|stretch| (stretch.mean - 1.0).abs()).map(|bounds| bounds.1).fold(0.0, f64::max);
    let throughput = worst(|stretch| stretch.throughput).map(|bounds| bounds.0).fold(1.0, f64::min);
    let latency = worst(|stretch| stretch.latency).map(|bounds| bounds.1).fold(0.0, f64::max);
    let recovery = |row: &Recovery| {
        json!({
            "service": format!("{:?}", row.service).to_lowercase(),
            "step": row.step,
            "within_bar": rounded(row.within_bar()),
            "half": row.quantile(0.5),
            "nine_in_ten": row.quantile(0.9),
            "all_but_one_in_a_hundred": row.quantile(0.99),
            "most": row.quantile(1.0),
        })
    };
    json!({
        "worlds": found.scenarios,
        "deviation_max": rounded(deviation),
        "throughput_min": rounded(throughput),
        "latency_max": rounded(latency),
        "recovery_bar": RECOVERY_BAR,
        "recovery": found.recovery.iter().map(recovery).collect::<Vec<_>>(),
        "large": large.iter().map(|row| (row.capacity.to_string(), json!(row.medians))).collect::<serde_json::Map<_, _>>(),
        "first_implementation": first,
        "violations": found.violations.len(),
    })
}
