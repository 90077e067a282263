//! `cargo xtask bench`: the benchmarks, which live outside the workspace so that no ordinary build pays for them.

mod both;

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::repository::{root, succeed, target};
use crate::services;

const USAGE: &str = "\
usage: cargo xtask bench inproc [--quick] [--rounds N] [--only PART] [--require-callgrind]
       cargo xtask bench fair [--quick] [--rounds N]
       cargo xtask bench redis|postgres [--rounds N]
       cargo xtask bench server [--quick] [--rounds N]
       cargo xtask bench peers [--quick] [--rounds N] [--only ROW] [--picture FILE]
       cargo xtask bench outbound [--quick|--latency]
       cargo xtask bench python
       cargo xtask bench lease|admission|budget|sketch|slots [--quick] [--rounds N] [--only PART] [--require-callgrind]";

/// The version that the figures in the documents were measured with.
const THROTTLECRAB: &str = "0.4.40";

/// Runs the suite that is named first, with the rest of the arguments.
pub(crate) fn run(args: &[String]) -> Result<()> {
    match args {
        // In-process checks compared with the peers.
        [suite, options @ ..] if suite == "inproc" => judge(package("inproc", &[], options)),
        // Debits, sketches, slots and tenants that share, likewise.
        [suite, ..] if ["budget", "sketch", "fair", "slots"].contains(&suite.as_str()) => {
            judge(package("inproc", &[], args))
        }
        // Shared stores compared with their bare engines.
        [suite, ..] if suite == "redis" || suite == "postgres" => {
            let engines = services::up_only(&[suite])?;
            judge(package("stores", &engines, args))
        }
        // The service compared with a bare echo and with its own store.
        [suite, ..] if suite == "server" => {
            let engines = services::up_only(&["redis"])?;
            judge(package("server", &engines, args))
        }
        // The shipped server, compared with other servers.
        [suite, options @ ..] if suite == "peers" => {
            let mut env = services::up_only(&["redis"])?;
            env.push(("THROTTLEKIT_BIN", throttlekit()?));
            // A peer without a path is reported as not measured.
            match throttlecrab() {
                Ok(path) => env.push(("THROTTLECRAB_BIN", path)),
                Err(error) => eprintln!("{error:#}"),
            }
            judge(package("peers", &env, options))
        }
        // Calls to a simulated provider, by several processes over Redis.
        [suite, options @ ..] if suite == "outbound" => {
            let engines = services::up_only(&["redis"])?;
            judge(package("outbound", &engines, options))
        }
        // The Python package compared with other limiters for Python.
        [suite] if suite == "python" => crate::python::bench(),
        // Both parts, for leases or admission.
        [suite, options @ ..] if suite == "lease" || suite == "admission" => both::run(suite, options),
        _ => bail!(USAGE),
    }
}

/// Runs a package of benchmarks, which fails when a threshold is missed.
fn judge(mut package: Command) -> Result<()> {
    let status = package.status().context("cargo did not start")?;
    ensure!(status.success(), "the benchmarks ended with {status}");
    Ok(())
}

/// Returns the path of our server: that of the environment, or else built as it is shipped.
fn throttlekit() -> Result<String> {
    if let Ok(path) = std::env::var("THROTTLEKIT_BIN") {
        return Ok(path);
    }
    let mut build = cargo();
    build.args(["build", "--locked", "--profile", "dist", "-p", "throttlekit-cli"]).current_dir(root());
    succeed(&mut build)?;
    Ok(target().join("dist/throttlekit").display().to_string())
}

/// Returns the path of throttlecrab's server: that of the environment, or else installed below `target`, linked as ours.
fn throttlecrab() -> Result<String> {
    if let Ok(path) = std::env::var("THROTTLECRAB_BIN") {
        return Ok(path);
    }
    let tools = root().join("target/tools");
    let program = tools.join("bin/throttlecrab-server");
    if !program.exists() {
        let mut install = cargo();
        install
            .args(["install", "--locked", &format!("throttlecrab-server@{THROTTLECRAB}"), "--root"])
            .arg(&tools);
        install.env("CARGO_TARGET_DIR", tools.join("build"));
        install.envs([("CARGO_PROFILE_RELEASE_LTO", "fat"), ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")]);
        let remedy = "it needs protoc (Debian: protobuf-compiler); or set THROTTLECRAB_BIN";
        succeed(&mut install).with_context(|| format!("cannot install throttlecrab-server; {remedy}"))?;
    }
    Ok(program.display().to_string())
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Returns one package of benchmarks, ready to run.
fn package(name: &str, env: &[(&str, String)], options: &[String]) -> Command {
    let mut command = cargo();
    command.args(["run", "--quiet", "--release", "--locked", "--manifest-path"]);
    command.arg(root().join("benches").join(name).join("Cargo.toml"));
    command.envs(env.iter().map(|(name, value)| (name, value)));
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        command.arg("--target-dir").arg(root().join("target/benches"));
    }
    command.arg("--").args(options);
    command
}
