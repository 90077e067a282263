//! Untrusted bytes against all parsers. The targets are in `throttlekit-fuzz`.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::runner::parts::{self, Part, Setup};
use crate::runner::{Options, Run, figure_of};

const EXECUTIONS: u64 = 10_000_000;
const SMALL_EXECUTIONS: u64 = 100_000;
const SEED: u64 = 1;

/// Runs every target, or the named ones. Fails if an input crashes one.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let targets: [(&str, parts::Verify); 5] = [
        ("policy", |setup| target("policy", setup)),
        ("wire", |setup| target("wire", setup)),
        ("descriptors", |setup| target("descriptors", setup)),
        ("sketch", |setup| target("sketch", setup)),
        ("responses", |setup| target("responses", setup)),
    ];
    parts::run(&targets, options, run)
}

fn target(name: &str, setup: Setup) -> Result<Part> {
    let executions = if setup.small { SMALL_EXECUTIONS } else { EXECUTIONS };
    let (figure, _) = figure_of(&mut runner(&[name, &executions.to_string(), &SEED.to_string()]))?;
    println!("{name}: {figure}");
    let number = |key: &str| figure[key].as_u64().with_context(|| format!("{name} does not tell its {key}"));
    let (ran, crashes) = (number("executions")?, number("crashes")?);
    let broken =
        if crashes > 0 { vec![format!("{name}: {crashes} inputs crash it; see above")] } else { vec![] };
    ensure!(crashes > 0 || ran == executions, "{name}: {ran} inputs of {executions}");
    Ok(Part { figure, broken, ..Part::default() })
}

fn runner(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args([
            "run",
            "--quiet",
            "--profile",
            "fuzz",
            "--locked",
            "-p",
            "throttlekit-fuzz",
            "--bin",
            "fuzz-run",
            "--",
        ])
        .args(words);
    command
}
