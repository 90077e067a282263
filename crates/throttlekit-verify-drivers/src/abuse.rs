//! The effect of attacks on other clients of the server. The attacks are those of its tests, in an optimized
//! build.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::runner::{Options, Run, figure_of};

/// Requests that a hostile client sends through Envoy by default.
const HOSTILE: u64 = 100_000;

/// Attacks a server in a process of its own. Fails if other clients were slowed down, the server grew, or an
/// attack did not take place. The test bounds its own time.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let mut command = measurement("figures::figures");
    if options.has("--small") {
        command.env("ABUSE_SMALL", "1");
    }
    command.env("ABUSE_ONLY", options.words().join(","));
    command.env("THROTTLEKIT_BINARY", shipped()?);
    outcome(command, run)
}

/// Attacks the shipped program with mixes of attacks. Fails if honest principals get less than alone.
pub(crate) fn run_fair(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let mut command = measurement("service::fair_service");
    pass_on(options, &[("--cases", "FAIR_MIXES"), ("--seed", "FAIR_SEED")], &mut command);
    command.env("THROTTLEKIT_BINARY", shipped()?).envs(run.services().up(&["redis"])?);
    outcome(command, run)
}

/// Builds the program as it is shipped.
fn shipped() -> Result<PathBuf> {
    let built = Command::new("cargo")
        .args([
            "build",
            "--profile",
            "dist",
            "--quiet",
            "--package",
            "throttlekit-cli",
            "--bin",
            "throttlekit",
        ])
        .status()?;
    ensure!(built.success(), "the program cannot be built; see above");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    Ok(target.join("dist/throttlekit").canonicalize()?)
}

/// Sends random headers through a real Envoy after a limit is exhausted. Fails if one of them passes.
pub(crate) fn run_envoy(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let mut command = server_test("integration");
    command.args(["--", "--exact", "envoy::no_set_of_headers_passes_a_limit_that_is_used_up", "--nocapture"]);
    command.env("HOSTILE_REQUESTS", options.number("--cases", HOSTILE)?.to_string());
    command.envs(run.services().up(&["envoy"])?);
    outcome(command, run)
}

/// Sends mutated requests and frames to every listener of a server. Fails if one of them crashes it, hangs or
/// leaks.
pub(crate) fn run_wire_fuzz(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let mut command = measurement("fuzz::full");
    let known = [("--cases", "WIRE_FUZZ_INPUTS"), ("--seed", "WIRE_FUZZ_SEED"), ("--from", "WIRE_FUZZ_FROM")];
    pass_on(options, &known, &mut command);
    outcome(command, run)
}

/// Returns the command of one of the network tests that run only on request.
fn measurement(test: &str) -> Command {
    let mut command = server_test("network");
    command.args(["--", "--ignored", "--exact", test, "--nocapture"]);
    command
}

/// Passes options on as the environment variables of the test.
fn pass_on(options: &Options<'_>, known: &[(&str, &str)], command: &mut Command) {
    for (option, variable) in known {
        if let Some(value) = options.value(option) {
            command.env(variable, value);
        }
    }
}

fn server_test(name: &str) -> Command {
    let mut command = Command::new("cargo");
    command.args([
        "test",
        "--profile",
        "proof",
        "--quiet",
        "--package",
        "throttlekit-server",
        "--test",
        name,
    ]);
    command
}

/// Runs a test and returns its figure.
fn outcome(mut command: Command, run: &mut Run) -> Result<Value> {
    let (figure, passed) = figure_of(&mut command)?;
    run.must(passed, || "the test failed; see above".into());
    Ok(figure)
}
