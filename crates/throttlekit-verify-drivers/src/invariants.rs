//! Every invariant over random cases, and every seeded bug of it: a table, and one `figure:` line.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit::clock::{Clock, PreciseClock};
use throttlekit_conformance::bugs::Found;
use throttlekit_conformance::invariants::{self, Invariant, Violation};

use crate::runner::{Options, Run, in_threads};

const CASES: u64 = 1_000_000;
const CASES_SMALL: u64 = 2_000;
const SEEDED_CASES_MAX: u64 = 100_000;
/// The number of cases that a thread takes at once.
const CHUNK: u64 = 2_000;
/// The maximum number of violations of one invariant that are printed in full.
const VIOLATIONS_SHOWN: usize = 3;

struct Proof {
    name: &'static str,
    cases: u64,
    violations: Vec<Violation>,
    seeded: Found,
    seconds: f64,
}

/// Verifies every guarantee of the rate axis.
pub(crate) fn rate(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    verify(&invariants::all(), options, run)
}

/// Verifies every guarantee of sharing by weight.
pub(crate) fn fair(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    verify(&throttlekit_verify::fair::invariants(), options, run)
}

/// Verifies every part of the order of waiters.
pub(crate) fn turn_order(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    verify(&throttlekit_verify::turn::invariants(), options, run)
}

fn verify(invariants: &[Invariant], options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let default = if options.has("--small") { CASES_SMALL } else { CASES };
    let (cases, seed) = (options.number("--cases", default)?, options.number("--seed", 0)?);
    println!("{:<24}{:>10}{:>12}{:>16}{:>9}", "invariant", "cases", "violations", "seeded found", "seconds");
    for invariant in invariants {
        let proof = verify_one(invariant, seed..seed.saturating_add(cases));
        tell(&proof);
        run.violated(proof.violations.iter().map(|violation| format!("{}: {violation}", proof.name)));
        run.seeded(proof.seeded);
    }
    Ok(json!({ "laws": invariants.len(), "cases": invariants.len() as u64 * cases }))
}

fn verify_one(invariant: &Invariant, cases: Range<u64>) -> Proof {
    let clock = PreciseClock::new();
    let begun = clock.now();
    let violations = check_in_parallel(invariant, cases.clone());
    let seeded = invariant.find_seeded(SEEDED_CASES_MAX);
    let seconds = clock.now().since(begun).as_secs_f64();
    Proof { name: invariant.name, cases: cases.end - cases.start, violations, seeded, seconds }
}

fn check_in_parallel(invariant: &Invariant, cases: Range<u64>) -> Vec<Violation> {
    let (next, done) = (AtomicU64::new(cases.start), AtomicU64::new(0));
    let work = || {
        let mut found = Vec::new();
        loop {
            let begin = next.fetch_add(CHUNK, Ordering::Relaxed);
            if begin >= cases.end {
                return found;
            }
            let end = (begin + CHUNK).min(cases.end);
            found.extend(invariant.check(begin..end).err());
            done.fetch_add(end - begin, Ordering::Relaxed);
        }
    };
    let progress = || format!("{:<24}{:>10}", invariant.name, done.load(Ordering::Relaxed));
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
