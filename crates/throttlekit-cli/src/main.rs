//! The `throttlekit` command.

mod lint;
mod migrate;
mod serve;

use std::process::ExitCode;

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
    /// Create or upgrade what a PostgreSQL store needs, once
    Migrate(migrate::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve::run(args),
        Command::Lint(args) => lint::run(&args),
        Command::Migrate(args) => migrate::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
