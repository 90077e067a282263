//! What the service costs beside a bare echo and beside its own store: `cargo xtask bench server`.
//!
//! Servers are processes of their own, as they are shipped; the callers are this process. Everything that is compared
//! runs in turns within one run, with the same callers and connections, and is judged by ratios of medians. All of it
//! shares the machine's cores.

mod calls;
mod child;
mod engine_bench;
mod leasing_bench;
mod in_process;
#[path = "../../stores/src/load.rs"]
mod load;
mod memory_bench;
mod process;
#[path = "../../stores/src/program.rs"]
mod program;
mod redis_bench;
#[path = "../../stores/src/report.rs"]
#[expect(dead_code, reason = "no threshold here is an upper one, and no table shows numbers already")]
mod report;
#[path = "../../stores/src/turns.rs"]
mod turns;

use std::process::ExitCode;

use anyhow::{Result, bail};
use report::Report;

/// Rounds of a run that is only for looking.
const QUICK: usize = 2;

fn main() -> ExitCode {
    program::run(run)
}

fn run(args: &[&str]) -> Result<bool> {
    match args {
        ["server", "--quick"] => bench(QUICK),
        ["server", rest @ ..] => bench(turns::rounds_from(rest)?),
        // The other side of the benchmarks.
        ["serve", store] => child::serve(store).map(|()| true),
        ["echo"] => child::echo().map(|()| true),
        _ => bail!("usage: cargo xtask bench server [--quick] [--rounds N]"),
    }
}

fn bench(rounds: usize) -> Result<bool> {
    let mut report = Report::default();
    memory_bench::run(rounds, &mut report)?;
    redis_bench::run(rounds, &mut report)?;
    engine_bench::run(rounds, &mut report)?;
    leasing_bench::run(rounds, &mut report)?;
    Ok(report.end("bench-server"))
}
