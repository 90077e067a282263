//! `throttlekit top`: the monitor of a server, as a live dashboard (feature `dashboard`) or as one snapshot.

#[cfg(feature = "dashboard")]
mod board;
#[cfg(feature = "dashboard")]
mod input;
mod monitor;
#[cfg(feature = "dashboard")]
mod poller;
#[cfg(all(test, feature = "dashboard"))]
#[path = "../../tests/common/pty.rs"]
mod pty;
#[cfg(feature = "dashboard")]
mod render;
#[cfg(feature = "dashboard")]
mod screen;
#[cfg(feature = "dashboard")]
mod svg;
#[cfg(all(test, feature = "dashboard"))]
mod tests;
mod text;
#[cfg(feature = "dashboard")]
mod units;

use anyhow::Result;
#[cfg(feature = "dashboard")]
use screen::run as dashboard;

use crate::connect::ConnectArgs;

/// Show a live dashboard of a server in the terminal
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectArgs,
    /// Poll the server this many times per second
    #[cfg(feature = "dashboard")]
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=20))]
    hz: u64,
    /// Print one snapshot as text and exit
    #[arg(long)]
    once: bool,
    /// Write the screen to an SVG file after watching for a few seconds, and exit
    #[cfg(feature = "dashboard")]
    #[arg(long, hide = true, value_name = "FILE")]
    svg: Option<std::path::PathBuf>,
    /// Watch for this many seconds before writing the SVG file
    #[cfg(feature = "dashboard")]
    #[arg(long, hide = true, default_value_t = 15)]
    svg_after: u64,
}

/// Runs until `q` is pressed, or prints one snapshot.
pub(crate) fn run(args: &Args) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if args.once {
            let snapshot = monitor::look_once(&args.connection).await?;
            print!("{}", text::plain(&snapshot));
            return Ok(());
        }
        dashboard(args).await
    })
}

#[cfg(not(feature = "dashboard"))]
async fn dashboard(_: &Args) -> Result<()> {
    anyhow::bail!("built without the feature `dashboard`: use --once")
}
