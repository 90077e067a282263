//! The plots of the documents, drawn from the experiments that the verifications check.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::picture::{Axis, Line, Panel, Picture, Scale};
use crate::root;
use crate::runner::optimized;
use throttlekit_verify::fair::{Given, PICTURED, shares_over_time};
use throttlekit_verify::metering::{self, CAPS, Policy};
use throttlekit_verify::price::two_axes::{self, CORRELATIONS, LONG_RUNS};

const RED: &str = "#c0392b";
const ORANGE: &str = "#e67e22";
const BLUE: &str = "#2980b9";
const GREEN: &str = "#27ae60";

const METERING_SEEDS: u64 = 20;
const PRICE_SEEDS: u32 = 2_000;
const FAIR_SEED: u64 = 1;

/// Draws a picture.
type Draw = fn() -> Picture;

/// Each picture of `docs/`.
const PICTURES: [(&str, Draw); 3] =
    [("metering.svg", metering), ("fair-shares.svg", fair_shares), ("regret.svg", regret)];

/// Draws every picture.
pub fn run(args: &[&str]) -> Result<()> {
    ensure!(args.is_empty(), "plots takes nothing, not {}", args.join(" "));
    if cfg!(debug_assertions) {
        return optimized(&["plots"]);
    }
    let docs = root().join("docs/images");
    for (name, draw) in PICTURES {
        fs::write(docs.join(name), draw().svg())
            .with_context(|| format!("cannot write docs/images/{name}"))?;
        println!("docs/images/{name}");
    }
    fs::write(docs.join("guard.svg"), guard()?.svg()).context("cannot write docs/images/guard.svg")?;
    println!("docs/images/guard.svg");
    Ok(())
}

/// Draws the limit of a guard, requests in flight and latency while a backend changes, as the example
/// `axum-guard` recorded them.
fn guard() -> Result<Picture> {
    let csv = root().join("target/guard.csv");
    let mut example = Command::new("cargo");
    example.args(["run", "--release", "-p", "axum-guard", "--"]).arg(&csv);
    ensure!(example.status()?.success(), "the example axum-guard failed");
    let rows: Vec<Vec<Option<f64>>> = fs::read_to_string(csv)?
        .lines()
        .skip(1)
        .map(|line| line.split(',').map(|value| value.parse().ok()).collect())
        .collect();
    let line = |name, colour, column: usize| {
        let points = rows.iter().filter_map(|row| Some((row[0]?, row[column]?))).collect();
        Line { name, colour, points }
    };
    let most =
        |lines: &[Line]| lines.iter().flat_map(|line| &line.points).map(|(_, up)| *up).fold(1.0, f64::max);
    let ends = rows.iter().filter_map(|row| row[0]).fold(0.0, f64::max).ceil();
    let panel = |title, step, lines: Vec<Line>| Panel {
        title,
        x: Axis::plain("seconds", Scale::Even, &[0.0, ends / 3.0, ends * 2.0 / 3.0, ends]),
        y: marked(most(&lines), step),
        lines,
    };
    let at_a_time =
        vec![line("best", "#999", 1), line("in flight", "#8ecae6", 3), line("limit", "#d62828", 2)];
    let latency = vec![line("best", "#999", 4), line("latency", "#2a6f97", 5)];
    Ok(Picture {
        panels: vec![panel("Requests at a time", 10.0, at_a_time), panel("Latency, ms", 50.0, latency)],
    })
}

/// Returns an axis from zero with a mark at each `step`, beyond the maximum.
fn marked(most: f64, step: f64) -> Axis {
    let step = step * (most / step / 6.0).ceil();
    let marks: Vec<f64> = (0..=(most / step).ceil() as u32).map(|nth| f64::from(nth) * step).collect();
    Axis::plain("", Scale::Even, &marks)
}

/// Draws the use and the overshoot of a budget by three ways to meter tokens, as a stream's cap grows.
fn metering() -> Picture {
    let rows = metering::table(METERING_SEEDS);
    let lines = |value: fn(&metering::Row) -> f64| {
        let line = |(policy, colour): (Policy, _)| Line {
            name: policy.label(),
            colour,
            points: rows
                .iter()
                .filter(|row| row.policy == policy)
                .map(|row| (row.cap as f64, value(row)))
                .collect(),
        };
        let shown = [
            (Policy::ReserveMax, RED),
            (Policy::AdmitThenCount, ORANGE),
            (Policy::ByChunks, BLUE),
            (Policy::PerToken, GREEN),
        ];
        shown.map(line).into()
    };
    let caps = || {
        let shown = CAPS.iter().filter(|cap| [256, 1_024, 4_096, 32_768].contains(*cap));
        let marks = shown.map(|cap| (*cap as f64, cap.to_string()));
        Axis { name: "most tokens a stream may produce", scale: Scale::Powers, marks: marks.collect() }
    };
    let beyond = [
        (0.1, "0"),
        (1.0, "1"),
        (10.0, "10"),
        (100.0, "100"),
        (1e3, "1,000"),
        (1e4, "10,000"),
        (1e5, "100,000"),
    ];
    let beyond = beyond.map(|(tokens, name)| (tokens, name.into())).into();
    let used = Panel {
        title: "used of the budget",
        x: caps(),
        y: Axis::percent(&[0.0, 0.25, 0.5, 0.75, 1.0]),
        lines: lines(|row| row.used),
    };
    let over = Panel {
        title: "most tokens beyond the budget in a window",
        x: caps(),
        y: Axis { name: "", scale: Scale::Powers, marks: beyond },
        lines: lines(|row| row.overshoot_max as f64),
    };
    Picture { panels: vec![used, over] }
}

/// Draws the shares of three tenants in three windows: one starts late in the first, one is quiet in the
/// second.
fn fair_shares() -> Picture {
    let panel = |title, rows: &[Given]| {
        let line = |(tenant, name, colour)| Line {
            name,
            colour,
            points: rows
                .iter()
                .filter(|row| row.tenant == tenant)
                .map(|row| ((row.step + 1) as f64 / 100.0, row.admitted as f64))
                .collect(),
        };
        Panel {
            title,
            x: Axis::plain("windows", Scale::Even, &[0.0, 1.0, 2.0, 3.0]),
            y: Axis::plain("", Scale::Even, &[0.0, 20_000.0, 40_000.0, 60_000.0]),
            lines: [(0, "weight 4", BLUE), (1, "weight 2", GREEN), (2, "weight 1", ORANGE)].map(line).into(),
        }
    };
    Picture {
        panels: vec![
            panel("units admitted in the window", &shares_over_time(FAIR_SEED, None)),
            panel("the same, and who is quiet gives back", &shares_over_time(FAIR_SEED, Some(PICTURED))),
        ],
    }
}

/// Returns the plotted value of one correlation.
type Value = fn(&two_axes::Row) -> f64;

/// Draws the loss of the optimum as runs of one kind of requests get longer.
fn regret() -> Picture {
    let mut correlations = [&CORRELATIONS[..], &LONG_RUNS].concat();
    correlations.sort_by(f64::total_cmp);
    let rows = two_axes::regret_by_correlation(&correlations, PRICE_SEEDS);
    let lines = |across: Value| {
        let line = |(name, colour, value): (_, _, Value)| Line {
            name,
            colour,
            points: rows.iter().map(|row| (across(row), value(row))).collect(),
        };
        let shown: [(_, _, Value); 4] = [
            ("limits alone", RED, |row| row.marginal),
            ("fixed prices", ORANGE, |row| row.joint),
            ("refined", BLUE, |row| row.refined),
            ("refined, told what is left", GREEN, |row| row.told),
        ];
        shown.map(line).into()
    };
    let lost = || Axis::percent(&[0.0, 0.2, 0.4, 0.6]);
    let by_correlation = Panel {
        title: "lost of the optimum",
        x: Axis::plain("correlation of one ask with the next", Scale::Even, &CORRELATIONS),
        y: lost(),
        lines: lines(|row| row.correlation),
    };
    // A kind repeats with probability (1 + ρ)/2; at ρ = 1 for all of the thousand requests.
    let by_run = Panel {
        title: "the same, where runs get long",
        x: Axis::plain("asks of one kind in a row", Scale::Powers, &[1.0, 10.0, 100.0, 1_000.0]),
        y: lost(),
        lines: lines(|row| (2.0 / (1.0 - row.correlation)).min(1_000.0)),
    };
    Picture { panels: vec![by_correlation, by_run] }
}
