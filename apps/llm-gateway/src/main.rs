//! The gateway as a command: `llm-gateway serve --config FILE`.

use anyhow::Result;
use clap::Parser;
use llm_gateway::serve::{self, Serve};

/// Gateway for language models that meters tokens while they stream.
#[derive(Parser)]
#[command(version)]
enum Command {
    Serve(Serve),
}

#[tokio::main]
async fn main() -> Result<()> {
    match Command::parse() {
        Command::Serve(args) => serve::run(args).await,
    }
}
