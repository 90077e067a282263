//! Bytes per live key, and allocations per hit.

use serde_json::{Value, json};

use crate::alloc;
use crate::child::{ask, number};
use crate::contenders::{build, build_for};
use crate::report::{Report, progress};
use crate::thresholds::{ALLOCATIONS_MAX, BYTES_PER_KEY_MAX};
use crate::workloads::{MANY, Stream};

/// A table of 2²¹ cells is half full with [`MANY`] keys, and nearly full with these.
const FULL: usize = 1_800_000;
const HITS: usize = 1_000_000;
const KEYS: usize = 10_000;
const PEERS: [&str; 5] = ["governor", "governor-best", "rate-net", "gcra", "throttlecrab"];
const OURS: [&str; 4] = ["ours-secret-precise", "ours-trusted-precise", "ours-by-16", "ours-keyless-precise"];

/// Runs the probe and checks its results.
pub fn judge(report: &mut Report) {
    progress("memory and allocations");
    let answer = ask(&["memory"]);
    println!("\nmemory at {MANY} live keys, allocations in {HITS} hits");
    report.at_most("bytes per key", number(&answer, "ours-secret-precise"), BYTES_PER_KEY_MAX);
    for peer in PEERS {
        report.note(&format!("bytes per key, {peer}"), number(&answer, peer));
    }
    for name in [OURS[0]].into_iter().chain(PEERS) {
        report.note(&format!("bytes per key at {FULL} keys, {name}"), number(&answer, &full(name)));
    }
    report.at_most("allocations", number(&answer, "allocations"), ALLOCATIONS_MAX as f64);
}

/// The probe: in its own process.
pub fn probe() -> Value {
    let allocations: u64 = OURS.into_iter().map(allocations).sum();
    let mut answer = json!({ "allocations": allocations });
    for name in [OURS[0]].into_iter().chain(PEERS) {
        answer[name] = json!(bytes_per_key(name, MANY));
        answer[full(name)] = json!(bytes_per_key(name, FULL));
    }
    answer
}

fn full(name: &str) -> String {
    format!("{name}-full")
}

fn bytes_per_key(name: &'static str, keys: usize) -> f64 {
    let before = alloc::live_bytes();
    let contender = build_for(name, keys);
    contender.seed(keys);
    let bytes = (alloc::live_bytes() - before) as f64 / keys as f64;
    (bytes * 10.0).round() / 10.0
}

/// Returns the allocations of a million hits beyond those of a single call: the loop's own scratch does not
/// count.
fn allocations(name: &'static str) -> u64 {
    let stream = Stream::even_10k();
    let contender = build(name);
    contender.seed(KEYS);
    let count = |hits| {
        let before = alloc::calls();
        contender.run(&stream, 0, hits, false);
        alloc::calls() - before
    };
    let once = count(16);
    count(HITS) - once
}
