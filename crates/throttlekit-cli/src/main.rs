//! The `throttlekit` command.

mod admin;
mod bench;
mod connect;
mod file;
mod health;
mod http2_args;
mod import_envoy;
mod import_limiters;
mod lint;
mod migrate;
mod schema;
mod serve;
mod signals;
mod store_args;
mod systemd;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Commands to start with, shown after the help.
const FIRST_STEPS: &str = "\
First steps:
  throttlekit lint policies.yaml     validate the file and explain its limits
  throttlekit serve policies.yaml    start a server on this machine, with counts in memory
  throttlekit top                    show its dashboard

Documentation: docs/reference/policy-file.md for the policy file, docs/operate/runbook.md for operators.";

/// Admission control for APIs and language-model gateways: rate, concurrency and cost in one decision.
#[derive(Parser)]
#[command(name = "throttlekit", version, after_help = FIRST_STEPS)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a server with a policy file
    Serve(Box<serve::Args>),
    /// Validate policy files and explain what they do
    Lint(lint::Args),
    /// Show a live dashboard of a server in the terminal
    Top(top::Args),
    /// Run a load test against a server and report its latency
    Bench(bench::Args),
    /// Check the health of a server, for supervisors and containers
    Health(health::Args),
    /// Forget what a key has used; needs a caller with the endpoint `admin`
    Reset(admin::ResetArgs),
    /// Grant units to a key once; needs a caller with the endpoint `admin`
    Grant(admin::GrantArgs),
    /// Set, remove or list other limits for keys while servers run; needs a caller with the endpoint `admin`
    Override(admin::OverrideArgs),
    /// Set, remove or list named limits that keys are assigned to; needs a caller with the endpoint `admin`
    Plan(admin::PlanArgs),
    /// List or end leases that clients hold at a server; needs a caller with the endpoint `admin`
    Leases(admin::LeasesArgs),
    /// Stop a server as SIGTERM does; needs a caller with the endpoint `admin` for everything
    Drain(admin::ServerArgs),
    /// Make a server read its files again; needs a caller with the endpoint `admin` for everything
    Reload(admin::ServerArgs),
    /// Set the log filter of a server until it ends; needs a caller with the endpoint `admin` for everything
    LogFilter(admin::LogFilterArgs),
    /// Print the configuration of a server without secrets; needs a caller with the endpoint `admin` for everything
    Config(admin::ServerArgs),
    /// Create or upgrade the schema of a PostgreSQL store; needed once
    Migrate(migrate::Args),
    /// Print the JSON Schema of policy files, for editors
    Schema(schema::Args),
    /// Convert configuration files of the TypeScript server (`limiters:`) to a policy file
    Import(import_limiters::Args),
    /// Convert configuration files of envoyproxy/ratelimit to a policy file
    ImportEnvoy(import_envoy::Args),
}

/// Parses the command line. Each option without a variable of its own can also be set by `THROTTLEKIT_` and its name.
fn parsed() -> Cli {
    let by_variable = |command: clap::Command| {
        command.mut_args(|option| match option.get_long() {
            Some(name) if option.get_env().is_none() => {
                let variable = format!("THROTTLEKIT_{}", name.to_uppercase().replace('-', "_"));
                option.env(variable).hide_env_values(true)
            }
            _ => option,
        })
    };
    let mut command = Cli::command();
    for name in ["serve", "migrate"] {
        command = command.mut_subcommand(name, by_variable);
    }
    Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
}

fn main() -> ExitCode {
    let done = match parsed().command {
        Command::Serve(args) => serve::run(*args),
        Command::Lint(args) => lint::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Health(args) => health::run(&args),
        Command::Reset(args) => admin::reset(&args),
        Command::Grant(args) => admin::grant(&args),
        Command::Override(args) => admin::overrides(&args),
        Command::Plan(args) => admin::plans(&args),
        Command::Leases(args) => admin::leases(&args),
        Command::Drain(args) => admin::drain(&args),
        Command::Reload(args) => admin::reload(&args),
        Command::LogFilter(args) => admin::log_filter(&args),
        Command::Config(args) => admin::config(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Import(args) => import_limiters::run(&args),
        Command::ImportEnvoy(args) => import_envoy::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
