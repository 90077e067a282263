//! The end of a benchmark program: its exit code reports whether every threshold was met.

use std::process::ExitCode;

use anyhow::Result;

/// Runs the benchmarks that the arguments name. `run` returns `true` if every threshold was met.
pub fn run(run: fn(&[&str]) -> Result<bool>) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
