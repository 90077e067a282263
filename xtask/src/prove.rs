//! Every law over very many worlds, every planted bug found: a table, and one line for machines.

use std::io::{self, IsTerminal};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use throttlekit::{Clock, PreciseClock};
use throttlekit_conformance::laws::{self, Law, Violation};

const CASES: u64 = 1_000_000;
const PLANTED_CASES_MAX: u64 = 100_000;
/// Above this many cases it pays to build with optimisation first.
const DEBUG_CASES_MAX: u64 = 20_000;
const THREADS: u64 = 2;
/// How many cases a thread takes at once.
const CHUNK: u64 = 2_000;
/// How many violations of one law are told in full.
const VIOLATIONS_SHOWN: usize = 3;

struct Proof {
    name: &'static str,
    cases: u64,
    violations: Vec<Violation>,
    planted: usize,
    /// Bugs the law did not see.
    missed: Vec<&'static str>,
    seconds: f64,
}

/// Proves every law of the rate axis.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    prove_all("rate", &laws::all(), args)
}

/// Proves every one of these laws and fails if one is violated or blind.
pub(crate) fn prove_all(what: &str, laws: &[Law], args: &[&str]) -> Result<()> {
    let cases = cases_from(what, args)?;
    if cfg!(debug_assertions) && cases > DEBUG_CASES_MAX {
        return run_released(what, args);
    }
    println!("{:<24}{:>10}{:>12}{:>16}{:>9}", "law", "cases", "violations", "planted found", "seconds");
    let proofs: Vec<Proof> = laws.iter().map(|law| tell(prove(law, cases))).collect();
    println!("figure: {}", figure(what, &proofs));
    let broken: Vec<_> = proofs.iter().filter(|p| !p.holds()).map(|p| p.name).collect();
    ensure!(broken.is_empty(), "not proved: {}", broken.join(", "));
    Ok(())
}

/// Proves again in a build with optimisation.
pub(crate) fn run_released(what: &str, args: &[&str]) -> Result<()> {
    let mut command = Command::new("cargo");
    command
        .args(["run", "--profile", "proof", "--quiet", "--package", "xtask", "--", "prove", what])
        .args(args);
    ensure!(command.status()?.success(), "rerun with\n  cargo run --profile proof -p xtask -- prove {what}");
    Ok(())
}

fn cases_from(what: &str, args: &[&str]) -> Result<u64> {
    match args {
        [] => Ok(CASES),
        ["--cases", n] => n.parse().with_context(|| format!("--cases {n}: write a whole number")),
        _ => anyhow::bail!("prove {what} takes --cases N and nothing else, not {}", args.join(" ")),
    }
}

fn prove(law: &Law, cases: u64) -> Proof {
    let clock = PreciseClock::new();
    let begun = clock.now();
    let violations = check_in_parallel(law, cases);
    let missed = law
        .planted
        .iter()
        .map(|(bug, _)| *bug)
        .filter(|bug| law.find(bug, PLANTED_CASES_MAX).is_none())
        .collect();
    let seconds = clock.now().since(begun).as_secs_f64();
    Proof { name: law.name, cases, violations, planted: law.planted.len(), missed, seconds }
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
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            if io::stderr().is_terminal() {
                eprint!("\r{:<24}{:>10}\r", law.name, done.load(Ordering::Relaxed));
            }
            thread::sleep(Duration::from_millis(20));
        }
        workers.into_iter().flat_map(|worker| worker.join().expect("a law does not panic")).collect()
    })
}

impl Proof {
    fn holds(&self) -> bool {
        self.violations.is_empty() && self.missed.is_empty()
    }
}

fn tell(proof: Proof) -> Proof {
    let found = format!("{}/{}", proof.planted - proof.missed.len(), proof.planted);
    let Proof { name, cases, violations, seconds, .. } = &proof;
    println!("{name:<24}{cases:>10}{:>12}{found:>16}{seconds:>9.1}", violations.len());
    for violation in violations.iter().take(VIOLATIONS_SHOWN) {
        println!("  {violation}");
    }
    for bug in &proof.missed {
        println!("  blind to the planted bug {bug}");
    }
    proof
}

fn figure(what: &str, proofs: &[Proof]) -> serde_json::Value {
    let sum = |of: fn(&Proof) -> u64| proofs.iter().map(of).sum::<u64>();
    json!({
        "name": format!("prove-{what}"),
        "laws": proofs.len(),
        "cases": sum(|p| p.cases),
        "violations": sum(|p| p.violations.len() as u64),
        "planted": sum(|p| p.planted as u64),
        "planted_found": sum(|p| (p.planted - p.missed.len()) as u64),
        "seconds": (proofs.iter().map(|p| p.seconds).sum::<f64>() * 10.0).round() / 10.0,
    })
}
