//! The mock model as a command.

use std::time::Duration;

use anyhow::Result;
use llm_gateway::serve::{LISTENING, bind, serve};

use super::{Lengths, Manner, app};

/// Run a mock model that streams filler text.
#[derive(Debug, clap::Args)]
pub struct Mock {
    /// Port on loopback. 0 picks a free one.
    #[arg(long, default_value_t = 9_001)]
    port: u16,
    /// Median length of a completion, in tokens.
    #[arg(long, default_value_t = 120.0)]
    median: f64,
    /// Sigma of the lognormal distribution of lengths. 0: all completions have the median length.
    #[arg(long, default_value_t = 1.0)]
    sigma: f64,
    /// Seed of the lengths.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tokens per chunk.
    #[arg(long, default_value_t = 4)]
    chunk: u64,
    /// Milliseconds to generate a chunk.
    #[arg(long, default_value_t = 20)]
    delay_ms: u64,
    /// Milliseconds of a window of `GET /stats`.
    #[arg(long, default_value_t = 60_000)]
    window_ms: u64,
}

/// Runs the mock model.
pub async fn run(args: Mock) -> Result<()> {
    let Mock { median, sigma, seed, chunk, window_ms, .. } = args;
    let (lengths, delay) = (Lengths { median, sigma, seed }, Duration::from_millis(args.delay_ms));
    let listener = bind(args.port).await?;
    println!("{LISTENING}{}", listener.local_addr()?);
    serve(listener, app(Manner { lengths, chunk, delay, window_ms })).await
}
