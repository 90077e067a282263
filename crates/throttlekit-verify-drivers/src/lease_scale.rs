//! The cost and the stranded units of leasing from eight nodes to ten thousand: a table, and one `figure:`
//! line.

use std::fs;

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit::leasing::Batch;
use throttlekit_sim::scale::{Lending, Shape, Toll, measure};

use crate::picture::{Axis, Line, Panel, Picture, Scale};
use crate::runner::{Options, Run};

const SEED: u64 = 1;
const LIMIT: u64 = 100_000;
/// The previous rule: nearly an eighth of the limit at once, which looks fair to eight nodes, or none.
const WHOLE_PERCENT: u64 = 12;
/// Batches of a fixed size.
const FIXED: [u64; 3] = [10, 100, 1_000];
/// At most one part in this many of what is left. The default of the limiter.
const SHARE: u64 = 4;
/// The demand exceeds the limit a little, so that stranded units are missed.
const DEMAND_PERCENT: u64 = 120;

/// Nodes and keys. All keys of a cluster together have the same limit.
const FLEETS: [(usize, usize); 7] =
    [(8, 1), (64, 1), (512, 1), (4_096, 1), (10_000, 1), (8, 1_000), (64, 100)];

// The thresholds.
const EIGHT_MIN: f64 = 0.95;
const FIVE_HUNDRED_MIN: f64 = 0.90;

struct Row {
    nodes: usize,
    keys: usize,
    whole: Toll,
    fixed: [Toll; FIXED.len()],
    learned: Toll,
    tapered: Toll,
}

/// Measures all clusters. Fails if one with sizes by demand strands too much.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    println!(
        "utilisation and calls per decision: {LIMIT} units a window, {DEMAND_PERCENT} % asked for, Zipf over nodes and keys\n"
    );
    println!(
        "| nodes | keys | {WHOLE_PERCENT} % or none | 10 | 100 | 1,000 | learned | learned, a quarter of the rest |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let rows = FLEETS.iter().map(|&fleet| measured(fleet)).collect::<Result<Vec<_>>>()?;
    if let Some(file) = options.value("--picture") {
        fs::write(file, picture_of(&rows).svg())?;
    }
    judge(&rows, run);
    Ok(figure(&rows))
}

fn measured((nodes, keys): (usize, usize)) -> Result<Row> {
    let limit = LIMIT / keys as u64;
    let shape = |lending| Shape { nodes, keys, limit, demand_percent: DEMAND_PERCENT, lending };
    let fixed = |batch| measure(&shape(Lending::Partial), SEED, &Batch::Fixed(batch));
    let row = Row {
        nodes,
        keys,
        whole: measure(&shape(Lending::Whole), SEED, &Batch::Fixed(limit * WHOLE_PERCENT / 100))?,
        fixed: [fixed(FIXED[0])?, fixed(FIXED[1])?, fixed(FIXED[2])?],
        learned: measure(&shape(Lending::Partial), SEED, &Batch::learned())?,
        tapered: measure(&shape(Lending::Tapered(SHARE)), SEED, &Batch::learned())?,
    };
    let tell = |toll: &Toll| format!("{:.3}, {:.4}", toll.utilisation(), toll.calls_per_decision());
    let cells: Vec<_> = row.tolls().map(tell).collect();
    println!("| {nodes} | {keys} | {} |", cells.join(" | "));
    Ok(row)
}

impl Row {
    fn tolls(&self) -> impl Iterator<Item = &Toll> {
        [&self.whole].into_iter().chain(&self.fixed).chain([&self.learned, &self.tapered])
    }
}

fn picture_of(rows: &[Row]) -> Picture {
    let nodes = || Axis::plain("nodes", Scale::Powers, &[8.0, 100.0, 1_000.0, 10_000.0]);
    let calls = [0.0001, 0.001, 0.01, 0.1, 1.0].map(|calls| (calls, format!("1 / {:.0}", 1.0 / calls)));
    let used = Panel {
        title: "what callers got of the limit",
        x: nodes(),
        y: Axis::percent(&[0.0, 0.25, 0.5, 0.75, 1.0]),
        lines: lines(rows, Toll::utilisation),
    };
    let asked = Panel {
        title: "calls to the store per decision",
        x: nodes(),
        y: Axis { name: "", scale: Scale::Powers, marks: calls.into() },
        lines: lines(rows, Toll::calls_per_decision),
    };
    Picture { panels: vec![used, asked] }
}

/// Returns the clusters with one key, by sizing rule.
fn lines(rows: &[Row], value: fn(&Toll) -> f64) -> Vec<Line> {
    let of = |name, colour, toll: fn(&Row) -> &Toll| Line {
        name,
        colour,
        points: rows
            .iter()
            .filter(|row| row.keys == 1)
            .map(|row| (row.nodes as f64, value(toll(row))))
            .collect(),
    };
    vec![
        of("12 % or none", "#c0392b", |row| &row.whole),
        of("batches of 1,000", "#e67e22", |row| &row.fixed[2]),
        of("batches of 100", "#2980b9", |row| &row.fixed[1]),
        of("learned, as it ships", "#27ae60", |row| &row.tapered),
    ]
}

fn figure(rows: &[Row]) -> Value {
    let round = |value: f64| (value * 10_000.0).round() / 10_000.0;
    let told = |toll: &Toll| json!([round(toll.utilisation()), round(toll.calls_per_decision())]);
    let rows = rows.iter().map(|row| {
        json!({
            "nodes": row.nodes,
            "keys": row.keys,
            "whole_fixed_learned_tapered": row.tolls().map(told).collect::<Vec<_>>(),
        })
    });
    json!({ "fleets": rows.collect::<Vec<_>>() })
}

fn judge(rows: &[Row], run: &mut Run) {
    for row in rows.iter().filter(|row| row.keys == 1) {
        let (nodes, least) = match row.nodes {
            8 => (8, EIGHT_MIN),
            512 => (512, FIVE_HUNDRED_MIN),
            _ => continue,
        };
        let got = row.tapered.utilisation();
        run.must(got >= least, || format!("{nodes} nodes use {got:.3} of their limit of at least {least}"));
        let fixed = row.whole.utilisation();
        run.must(fixed < least, || format!("large batches strand too little at {nodes} nodes to compare"));
    }
}
