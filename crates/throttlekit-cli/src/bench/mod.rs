//! `throttlekit bench`: runs a load test against a server and reports the results.

mod histogram;
mod load;
mod report;

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use throttlekit_server::policy::Span;

use crate::connect::ConnectArgs;

/// Run a load test against a server and report its latency
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectArgs,
    /// Use this policy
    #[arg(long)]
    policy: String,
    /// Spread requests over this many keys
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    keys: u64,
    /// Request this many units per key
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..))]
    cost: i64,
    /// Open this many connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    connections: u32,
    /// Keep this many requests in flight on each connection
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    in_flight: u32,
    /// Run for this long
    #[arg(long, default_value = "10s")]
    duration: Span,
    /// Call this RPC
    #[arg(long, value_enum, default_value_t = Rpc::Check)]
    rpc: Rpc,
    /// Check this many keys per `check-many`
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    batch: u32,
    /// Send this many requests per second, on a schedule that does not wait for responses; default: as many as possible
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    rate: Option<u64>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// RPC that the load test calls.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Rpc {
    /// Check and charge one key.
    Check,
    /// Check and charge several keys.
    CheckMany,
    /// Admit work, and release it immediately.
    Admit,
}

/// Runs the load test for the given duration, or until ctrl-c.
pub(crate) fn run(args: &Args) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let tally = runtime.block_on(async {
        let progress = progress(args.duration.0);
        let tally = load::load(args, &progress).await;
        progress.finish_and_clear();
        tally
    })?;
    if args.json {
        println!("{}", report::json(args, &tally));
    } else {
        print!("{}", report::text(args, &tally));
    }
    anyhow::ensure!(tally.answers() > 0, "no request got a response");
    Ok(())
}

fn progress(wait: Duration) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style =
        ProgressStyle::with_template("{bar:40} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(wait.as_millis() as u64), target).with_style(style)
}
