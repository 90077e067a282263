//! `throttlekit bench`: loads a server and says how it did.

mod histogram;
mod load;
mod report;

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use throttlekit_server::policy::Span;

use crate::connect::ConnectArgs;

/// Load a server, and see how fast it answers
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectArgs,
    /// Which policy is asked
    #[arg(long)]
    policy: String,
    /// How many keys ask
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    keys: u64,
    /// How many units each asks for
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..))]
    cost: i64,
    /// How many connections there are
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    connections: u32,
    /// How many requests are under way on each
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    in_flight: u32,
    /// For how long
    #[arg(long, default_value = "10s")]
    duration: Span,
    /// What is asked
    #[arg(long, value_enum, default_value_t = Rpc::Check)]
    rpc: Rpc,
    /// How many keys one `check-many` asks for
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    batch: u32,
    /// How many requests a second, on a schedule that does not wait for answers; as many as go, unless stated
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    rate: Option<u64>,
    /// Print figures as JSON
    #[arg(long)]
    json: bool,
}

/// What is asked.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Rpc {
    /// One key, charged.
    Check,
    /// Several keys, charged.
    CheckMany,
    /// Work that is admitted, and released at once.
    Admit,
}

/// Loads a server for as long as was said, or until ctrl-c.
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
    anyhow::ensure!(tally.answers() > 0, "no request was answered");
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
