//! `fuzz-run TARGET COUNT SEED [FROM]`: runs a target over `COUNT` inputs, and prints one line for machines.

use std::process::ExitCode;

use serde_json::json;
use throttlekit_fuzz::{TARGETS, run};

const USAGE: &str = "usage: fuzz-run policy|wire|descriptors|sketch|responses COUNT SEED [FROM]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Option<Vec<u64>> = args.iter().skip(1).map(|arg| arg.parse().ok()).collect();
    let target = TARGETS.iter().find(|(name, _)| args.first().is_some_and(|arg| arg == name));
    let (Some((name, target)), Some([count, seed, from @ ..])) = (target, numbers.as_deref()) else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let ran = run::run(name, *target, from.first().copied().unwrap_or(0), *count, *seed);
    let figure = json!({
        "name": format!("fuzz-{name}"),
        "executions": ran.executions,
        "good": ran.good,
        "crashes": ran.crashes,
        "seconds": (ran.seconds * 10.0).round() / 10.0,
    });
    println!("figure: {figure}");
    if ran.crashes == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
