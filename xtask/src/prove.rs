//! Every invariant over very many worlds, every seeded bug found: a table, and one line for machines.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use serde_json::json;
use throttlekit::{Clock, PreciseClock};
use throttlekit_conformance::bugs::Found;
use throttlekit_conformance::laws::{self, Law, Violation};

use crate::verify::{Options, Run, in_threads};

const CASES: u64 = 1_000_000;
const SEEDED_CASES_MAX: u64 = 100_000;
/// Above this many cases it pays to build with optimisation first.
const DEBUG_CASES_MAX: u64 = 20_000;
/// How many cases a thread takes at once.
const CHUNK: u64 = 2_000;
/// How many violations of one law are told in full.
const VIOLATIONS_SHOWN: usize = 3;

struct Proof {
    name: &'static str,
    cases: u64,
    violations: Vec<Violation>,
    seeded: Found,
    seconds: f64,
}

/// Proves every law of the rate axis.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    prove_all("rate", &laws::all(), args)
}

/// Proves every one of these laws and fails if one is violated or blind.
pub(crate) fn prove_all(what: &'static str, laws: &[Law], args: &[&str]) -> Result<()> {
    let cases = Options::parse(what, &["--cases="], args)?.number("--cases", CASES)?;
    if cfg!(debug_assertions) && cases > DEBUG_CASES_MAX {
        return run_released(what, args);
    }
    let mut run = Run::begin(what);
    println!("{:<24}{:>10}{:>12}{:>16}{:>9}", "invariant", "cases", "violations", "seeded found", "seconds");
    for law in laws {
        let proof = prove(law, cases);
        tell(&proof);
        run.violated(proof.violations.iter().map(|violation| format!("{}: {violation}", proof.name)));
        run.seeded(proof.seeded);
    }
    run.end(json!({ "laws": laws.len(), "cases": laws.len() as u64 * cases }))
}

/// Proves again in a build with optimisation.
pub(crate) fn run_released(what: &str, args: &[&str]) -> Result<()> {
    run_fast(&[&["prove", what], args].concat())
}

/// Runs a command of ours again in a build with optimisation.
pub(crate) fn run_fast(words: &[&str]) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["run", "--profile", "proof", "--quiet", "--package", "xtask", "--"]).args(words);
    ensure!(
        command.status()?.success(),
        "rerun with\n  cargo run --profile proof -p xtask -- {}",
        words.join(" ")
    );
    Ok(())
}

fn prove(law: &Law, cases: u64) -> Proof {
    let clock = PreciseClock::new();
    let begun = clock.now();
    let violations = check_in_parallel(law, cases);
    let seeded = law.find_seeded(SEEDED_CASES_MAX);
    let seconds = clock.now().since(begun).as_secs_f64();
    Proof { name: law.name, cases, violations, seeded, seconds }
}

fn check_in_parallel(law: &Law, cases: u64) -> Vec<Violation> {
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let mut found = Vec::new();
        loop {
            let begin = next.fetch_add(CHUNK, Ordering::Relaxed);
            if begin >= cases {
                return found;
            }
            let end = (begin + CHUNK).min(cases);
            found.extend(law.check(begin..end).err());
            done.fetch_add(end - begin, Ordering::Relaxed);
        }
    };
    let progress = || format!("{:<24}{:>10}", law.name, done.load(Ordering::Relaxed));
    in_threads(&work, progress).concat()
}

fn tell(proof: &Proof) {
    let Proof { name, cases, violations, seeded, seconds } = proof;
    let found = format!("{}/{}", seeded.found.len(), seeded.total());
    println!("{name:<24}{cases:>10}{:>12}{found:>16}{seconds:>9.1}", violations.len());
    for violation in violations.iter().take(VIOLATIONS_SHOWN) {
        println!("  {violation}");
    }
    for bug in &seeded.missed {
        println!("  seeded bug not found: {bug}");
    }
}
