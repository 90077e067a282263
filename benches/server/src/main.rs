//! The cost of the service compared with a bare echo and with its own store: `cargo xtask bench server`.
//!
//! Servers are separate processes of the shipped program; the callers are this process. All contenders of a
//! comparison run in turns within one run, with the same callers and connections, and ratios of medians are
//! checked. All of it shares the machine's cores.

mod alloc;
mod calls;
mod child;
mod engine_bench;
mod in_process;
mod leasing_bench;
#[path = "../../stores/src/load.rs"]
mod load;
mod memory_bench;
mod process;
#[path = "../../stores/src/program.rs"]
mod program;
mod redis_bench;
#[path = "../../stores/src/report.rs"]
#[expect(dead_code, reason = "no count here is exact, and no table shows numbers already")]
mod report;
#[path = "../../stores/src/turns.rs"]
mod turns;

use std::process::ExitCode;

use anyhow::{Result, bail};
use report::Report;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

/// Rounds of a quick run.
const QUICK: usize = 2;

fn main() -> ExitCode {
    program::run(run)
}

fn run(args: &[&str]) -> Result<bool> {
    match args {
        ["server", "--quick"] => bench(QUICK),
        ["server", rest @ ..] => bench(turns::rounds_from(rest)?),
        // The server side of the benchmarks.
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
