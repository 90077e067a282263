//! What leasing costs and strands from eight nodes to ten thousand: a table, and one line for machines.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use throttlekit_sim::scale::{Fixed, Lending, RootOfDemand, Shape, Toll, measure};

use crate::prove::run_released;

const SEED: u64 = 1;
const LIMIT: u64 = 100_000;
/// A fixed batch of nearly an eighth of the limit: what looks fair to a fleet of eight.
const BATCH_PERCENT: u64 = 12;
/// A little more is asked for than there is, so that whatever is stranded is missed.
const DEMAND_PERCENT: u64 = 120;

/// Nodes and keys. All keys of a fleet together have the same limit.
const FLEETS: [(usize, usize); 7] =
    [(8, 1), (64, 1), (512, 1), (4_096, 1), (10_000, 1), (8, 1_000), (64, 100)];

// The bars.
const EIGHT_MIN: f64 = 0.95;
const FIVE_HUNDRED_MIN: f64 = 0.90;

struct Row {
    nodes: usize,
    keys: usize,
    whole: Toll,
    fixed: Toll,
    sized: Toll,
    tapered: Toll,
}

/// Measures all fleets, and fails if one with sizes by demand strands too much.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    ensure!(args.is_empty(), "prove lease-scale takes nothing more");
    if cfg!(debug_assertions) {
        return run_released("lease-scale", args);
    }
    println!(
        "utilisation and calls per decision: {LIMIT} units a window, {DEMAND_PERCENT} % asked for, Zipf over nodes and keys\n"
    );
    println!(
        "| nodes | keys | whole batches of {BATCH_PERCENT} % | partial grants | sized by demand | sized and tapered |"
    );
    println!("|---|---|---|---|---|---|");
    let rows = FLEETS.iter().map(|&fleet| measured(fleet)).collect::<Result<Vec<_>>>()?;
    println!("\nfigure: {}", figure(&rows));
    judge(&rows)
}

fn measured((nodes, keys): (usize, usize)) -> Result<Row> {
    let limit = LIMIT / keys as u64;
    let shape = |lending| Shape { nodes, keys, limit, demand_percent: DEMAND_PERCENT, lending };
    let batch = limit * BATCH_PERCENT / 100;
    // The last units go round among those who still ask, who are fewer than all.
    let taper = Lending::Tapered((nodes as u64).isqrt().max(4));
    let row = Row {
        nodes,
        keys,
        whole: measure(&shape(Lending::Whole), SEED, || Fixed(batch))?,
        fixed: measure(&shape(Lending::Partial), SEED, || Fixed(batch))?,
        sized: measure(&shape(Lending::Partial), SEED, RootOfDemand::default)?,
        tapered: measure(&shape(taper), SEED, RootOfDemand::default)?,
    };
    let tell = |toll: &Toll| format!("{:.3}, {:.4}", toll.utilisation(), toll.calls_per_decision());
    let [whole, fixed, sized, tapered] = [&row.whole, &row.fixed, &row.sized, &row.tapered].map(tell);
    println!("| {nodes} | {keys} | {whole} | {fixed} | {sized} | {tapered} |");
    Ok(row)
}

fn figure(rows: &[Row]) -> Value {
    let round = |value: f64| (value * 10_000.0).round() / 10_000.0;
    let told = |toll: &Toll| json!([round(toll.utilisation()), round(toll.calls_per_decision())]);
    let rows = rows.iter().map(|row| {
        json!({
            "nodes": row.nodes,
            "keys": row.keys,
            "whole": told(&row.whole),
            "partial": told(&row.fixed),
            "sized": told(&row.sized),
            "tapered": told(&row.tapered),
        })
    });
    json!({ "name": "prove-lease-scale", "fleets": rows.collect::<Vec<_>>() })
}

fn judge(rows: &[Row]) -> Result<()> {
    for row in rows.iter().filter(|row| row.keys == 1) {
        let least = match row.nodes {
            8 => EIGHT_MIN,
            512 => FIVE_HUNDRED_MIN,
            _ => continue,
        };
        let got = row.tapered.utilisation();
        ensure!(got >= least, "{} nodes use {got:.3} of their limit, which should be {least}", row.nodes);
        let fixed = row.whole.utilisation().max(row.fixed.utilisation());
        ensure!(fixed < least, "fixed batches strand too little at {} nodes to show anything", row.nodes);
    }
    Ok(())
}
