//! Our server beside its peers, Limitador and throttlecrab: `cargo xtask bench peers`.
//!
//! Each server is a process of its own on loopback, in its default configuration. One load generator on one thread
//! drives all of them in the same way. Contenders of a row take turns in rotating order, and are judged by the median
//! over rounds of the ratio within a round. All of it shares the machine's cores.
//!
//! | environment | meaning |
//! |---|---|
//! | `THROTTLEKIT_BIN` | our server, required; `cargo xtask` builds it |
//! | `BASELINE_BIN` | an earlier build of ours, whose unary method sessions are compared with; default: the same build |
//! | `THROTTLECRAB_BIN` | `throttlecrab-server`; `cargo xtask` installs it |
//! | `LIMITADOR_BIN` | `limitador-server`, built elsewhere |
//! | `THROTTLEKIT_REDIS` | URL of a Redis; `cargo xtask` starts one |
//!
//! A peer without a path is reported as not measured.

mod apis;
mod exactness;
mod failures;
mod grpc;
mod http1;
mod keys;
mod load;
mod memory;
mod picture;
mod process;
#[path = "../../stores/src/program.rs"]
mod program;
#[path = "../../stores/src/report.rs"]
mod report;
mod resp;
mod row;
mod servers;
mod session;
mod speed;
#[path = "../../stores/src/turns.rs"]
#[expect(dead_code, reason = "contenders rotate here, and have several measures")]
mod turns;
mod writes;

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use picture::Picture;
use report::Report;
use servers::Programs;
use tokio::runtime::{Builder, Runtime};

/// Rounds of a run that is only for looking.
const QUICK_ROUNDS: usize = 2;

/// Everything that all rows use.
pub struct Bench {
    pub runtime: Runtime,
    pub rounds: usize,
    pub programs: Programs,
    pub report: Report,
    pub picture: Picture,
    /// Only rows whose title contains this text are measured. Empty for all, and what is no row.
    pub only: String,
}

fn main() -> ExitCode {
    program::run(run)
}

fn run(args: &[&str]) -> Result<bool> {
    let (args, picture) = match args {
        [args @ .., "--picture", file] => (args, Some(*file)),
        args => (args, None),
    };
    let (args, only) = match args {
        [args @ .., "--only", text] => (args, (*text).to_owned()),
        args => (args, String::new()),
    };
    let rounds = if args == ["--quick"] { QUICK_ROUNDS } else { turns::rounds_from(args)? };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (programs, report) = (Programs::find()?, Report::default());
    let mut bench = Bench { runtime, rounds, programs, report, picture: Picture::default(), only };
    introduce(&mut bench)?;
    if bench.only.is_empty() {
        exactness::run(&mut bench)?;
        failures::run(&mut bench)?;
        writes::run(&mut bench)?;
    }
    speed::in_memory(&mut bench)?;
    speed::sessions(&mut bench)?;
    speed::on_redis(&mut bench)?;
    if bench.only.is_empty() {
        memory::run(&mut bench)?;
    }
    if let Some(file) = picture {
        std::fs::write(file, bench.picture.svg()).with_context(|| format!("cannot write {file}"))?;
    }
    Ok(bench.report.end("bench-peers"))
}

/// Prints what is compared, where and when.
fn introduce(bench: &mut Bench) -> Result<()> {
    let date =
        Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output().context("cannot run date")?;
    bench.report.text("date", String::from_utf8_lossy(&date.stdout).trim());
    bench.report.text("machine", &process::machine());
    bench.report.text("rounds", &bench.rounds.to_string());
    for (name, version) in bench.programs.versions()? {
        bench.report.text(&format!("version of {name}"), &version);
    }
    Ok(())
}
