//! A gateway for language models, its mock model, and a load that compares ways to meter.
//!
//! ```sh
//! llm-gateway mock                              # a model that knows no answers, on port 9001
//! llm-gateway serve --config examples/llm-gateway/gateway.json   # the gateway before it, on port 8080
//! llm-gateway load                              # both, three gateways, sixty-four streams, three meters: a table
//! ```

use anyhow::Result;
use clap::Parser;
use llm_gateway::{load, serve};

/// A gateway for language models, its mock model, and a load that compares ways to meter.
#[derive(Parser)]
enum Command {
    Mock(serve::Mock),
    Serve(serve::Serve),
    Load(load::Plan),
}

#[tokio::main]
async fn main() -> Result<()> {
    match Command::parse() {
        Command::Mock(args) => serve::mock(args).await,
        Command::Serve(args) => serve::gateway(args).await,
        Command::Load(plan) => load::run(plan).await,
    }
}
