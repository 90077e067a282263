//! The cost of the shared stores compared with their bare engines: `cargo xtask bench redis`, `… postgres`,
//! `… lease`, `… admission`.
//!
//! All contenders of a comparison run in turns within one run, and ratios of medians are checked.

mod admission_bench;
mod commandstats;
mod lease_bench;
mod load;
mod postgres_bench;
mod program;
mod redis_bench;
#[expect(dead_code, reason = "no table here shows numbers already")]
mod report;
mod shell;
mod turns;

use std::process::ExitCode;

use anyhow::{Result, bail};

fn main() -> ExitCode {
    program::run(run)
}

fn run(args: &[&str]) -> Result<bool> {
    match args {
        ["redis", rest @ ..] => redis_bench::run(turns::rounds_from(rest)?),
        ["lease", rest @ ..] => lease_bench::run(turns::rounds_from(rest)?),
        ["admission", rest @ ..] => admission_bench::run(turns::rounds_from(rest)?),
        ["postgres", rest @ ..] => postgres_bench::run(turns::rounds_from(rest)?),
        _ => bail!("usage: cargo xtask bench redis|postgres|lease|admission [--rounds N]"),
    }
}
