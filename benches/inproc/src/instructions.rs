//! Instructions per check, counted by callgrind: the one number here that is exactly reproducible.

use std::env;
use std::process::Command;

use crate::contenders::{Contender, build};
use crate::report::{Report, progress};
use crate::thresholds::INSTRUCTIONS_MAX;
use crate::workloads::Stream;
use crate::{admission, budget, lease, sketch, slots};

const CONTENDERS: [&str; 8] = [
    "ours-trusted-precise",
    "ours-secret-precise",
    "ours-keyless-precise",
    "governor",
    "governor-fast-hash",
    "governor-best",
    "governor-direct",
    "floor-precise",
];
/// Only code inside this function is counted.
const REGION: &str = "throttlekit_inproc_region";
const FEW: usize = 100_000;
const KEYS: usize = 10_000;

/// Counts and checks the threshold.
pub fn judge(report: &mut Report, required: bool) {
    for (name, count) in counts(report, required, &CONTENDERS) {
        if name == CONTENDERS[0] {
            report.at_most(&format!("instructions, {name}"), count, INSTRUCTIONS_MAX);
        } else {
            note(report, name, count);
        }
    }
}

/// Counts contenders without a threshold.
pub fn tell(report: &mut Report, required: bool, names: &[&'static str]) {
    counts(report, required, names).into_iter().for_each(|(name, count)| note(report, name, count));
}

fn note(report: &mut Report, name: &str, count: f64) {
    report.note(&format!("instructions, {name}"), (count * 10.0).round() / 10.0);
}

/// Returns the instructions of each; none, and a note, where callgrind is not installed.
fn counts(report: &mut Report, required: bool, names: &[&'static str]) -> Vec<(&'static str, f64)> {
    progress("instructions");
    println!("\ninstructions per check over {KEYS} keys, the loop subtracted");
    let Some(nothing) = per_check("nothing") else {
        report.note("instructions", "valgrind is not installed: not counted");
        if required {
            report.holds("instructions are counted", false);
        }
        return Vec::new();
    };
    let count = |name| per_check(name).map_or(f64::NAN, |count| count - nothing);
    names.iter().map(|&name| (name, count(name))).collect()
}

/// Returns the difference of a long and a short run, so that one-time work cancels out.
fn per_check(name: &str) -> Option<f64> {
    let few = collected(name, FEW)?;
    let more = collected(name, 2 * FEW)?;
    Some((more - few) as f64 / FEW as f64)
}

fn collected(name: &str, count: usize) -> Option<u64> {
    let program = env::current_exe().expect("a path to this program");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", &format!("--toggle-collect={REGION}")])
        .arg(program)
        .args(["callgrind", name, &count.to_string()])
        .output()
        .ok()?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let collected =
        told.lines().find_map(|line| line.split_once("Collected :")).map(|(_, count)| count.trim());
    let collected = collected.and_then(|count| count.parse().ok());
    assert!(collected.is_some(), "callgrind tells what it collected:\n{told}");
    collected
}

/// The program under callgrind: `count` checks by one contender that has all keys.
pub fn probe(name: &str, count: usize) {
    let known = ["nothing"].into_iter().chain(CONTENDERS);
    let known =
        known.chain(lease::COUNTED).chain(budget::COUNTED).chain(sketch::COUNTED).chain(slots::COUNTED);
    let known = known.chain(admission::COUNTED);
    let name = known.into_iter().find(|known| *known == name).expect("a contender to count");
    let stream = Stream::even_10k();
    let contender = build(name);
    contender.seed(KEYS);
    contender.run(&stream, 0, 1_024, false);
    throttlekit_inproc_region(&contender, &stream, count);
}

/// Named for callgrind, and never inlined.
#[unsafe(no_mangle)]
#[inline(never)]
fn throttlekit_inproc_region(contender: &Contender, stream: &Stream, count: usize) {
    contender.run(stream, 0, count, false);
}
