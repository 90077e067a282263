//! The mock model and the load generator as commands.

use anyhow::Result;
use clap::Parser;
use llm_gateway::serve::{self, Serve};
use llm_gateway_load::load::{self, Plan};
use llm_gateway_load::mock::{self, Mock};

/// Mock model and load generator for llm-gateway.
#[derive(Parser)]
#[command(version)]
enum Command {
    Mock(Mock),
    Load(Plan),
    /// The gateway of the same build, which `load` starts as processes of their own.
    #[command(hide = true)]
    Serve(Serve),
}

#[tokio::main]
async fn main() -> Result<()> {
    match Command::parse() {
        Command::Mock(args) => mock::run(args).await,
        Command::Load(plan) => load::run(plan).await,
        Command::Serve(args) => serve::run(args).await,
    }
}
