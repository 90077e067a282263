//! What attacks on the server cost everyone else. The attacks are those of its tests, with optimisation.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::services;

/// Requests that a hostile client of Envoy's sends, unless stated.
const HOSTILE: &str = "100000";

/// Attacks a server in a process of its own, and fails if others were slowed down, it grew, or an attack did not take
/// place. The test bounds its own time.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let mut command = measurement("figures::figures");
    let (options, attacks): (Vec<&str>, Vec<&str>) = args.iter().partition(|arg| arg.starts_with('-'));
    match options[..] {
        [] => {}
        ["--small"] => {
            command.env("ABUSE_SMALL", "1");
        }
        _ => bail!("prove abuse takes --small and names of attacks, not {}", options.join(" ")),
    }
    command.env("ABUSE_ONLY", attacks.join(","));
    command.env("THROTTLEKIT_BINARY", shipped()?);
    told(command)
}

/// Attacks the shipped program by mixes of attacks, and fails if honest principals get less than alone.
pub(crate) fn run_fair(args: &[&str]) -> Result<()> {
    let mut command = measurement("service::fair_service");
    size(&mut command, "fair-service", args, &[("--mixes", "FAIR_MIXES"), ("--seed", "FAIR_SEED")])?;
    command.env("THROTTLEKIT_BINARY", shipped()?).envs(services::up_only(&["redis"])?.env());
    told(command)
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

/// Sends random headers through a real Envoy after a limit is used up, and fails if one of them passes.
pub(crate) fn run_envoy(args: &[&str]) -> Result<()> {
    let requests = match args {
        [] => HOSTILE,
        ["--requests", requests] => requests,
        _ => bail!("prove envoy-hostile takes --requests N, not {}", args.join(" ")),
    };
    let mut command = server_test("envoy");
    command.args(["--", "--exact", "no_set_of_headers_passes_a_limit_that_is_used_up", "--nocapture"]);
    command.env("HOSTILE_REQUESTS", requests).envs(services::up_only(&["envoy"])?.env());
    told(command)
}

/// Sends mutated requests and frames to every listener of a server, and fails if one of them crashes it, hangs or leaks.
pub(crate) fn run_wire_fuzz(args: &[&str]) -> Result<()> {
    let mut command = measurement("fuzz::full");
    let known =
        [("--inputs", "WIRE_FUZZ_INPUTS"), ("--seed", "WIRE_FUZZ_SEED"), ("--from", "WIRE_FUZZ_FROM")];
    size(&mut command, "wire-fuzz", args, &known)?;
    told(command)
}

/// One of the network tests that run only when asked for.
fn measurement(test: &str) -> Command {
    let mut command = server_test("network");
    command.args(["--", "--ignored", "--exact", test, "--nocapture"]);
    command
}

/// Passes options on as the variables by which the test knows them. Each has a value.
fn size(command: &mut Command, what: &str, args: &[&str], known: &[(&str, &str)]) -> Result<()> {
    for option in args.chunks(2) {
        let [name, value] = option else { bail!("{}: it has a value", option.join(" ")) };
        let Some((_, variable)) = known.iter().find(|(known, _)| known == name) else {
            let known: Vec<_> = known.iter().map(|(name, _)| format!("{name} N")).collect();
            bail!("prove {what} takes {}, not {}", known.join(", "), args.join(" "));
        };
        command.env(variable, value);
    }
    Ok(())
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

/// Shows what a test prints, its figure last, for whoever reads the last line.
fn told(mut command: Command) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut figure = None;
    for line in BufReader::new(child.stdout.take().context("its output")?).lines() {
        let line = line?;
        if line.starts_with("figure: ") {
            figure = Some(line);
        } else {
            println!("{line}");
        }
    }
    let ended = child.wait()?;
    println!(
        "{}",
        figure.context("it did not come to its end; see above, and run it where nothing else runs")?
    );
    ensure!(ended.success(), "not proved; see above");
    Ok(())
}
