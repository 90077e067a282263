//! The `throttlekit` command.

mod lint;
mod serve;

use clap::{Parser, Subcommand};

/// Admission control for APIs and language-model gateways: rate, concurrency and cost in one decision.
#[derive(Parser)]
#[command(name = "throttlekit", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the policies of a file
    Serve(serve::Args),
    /// Check a policy file, and say in words what it does
    Lint(lint::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Serve(args) => serve::run(args),
        Command::Lint(args) => lint::run(&args),
    }
}
