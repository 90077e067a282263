//! Floods against limits in a sketch, compared with exact counts: tables, and one `figure:` line.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit::overload::Shape;
use throttlekit_conformance::bugs::Found;

use crate::runner::{Options, Run, rounded};
use throttlekit_verify::sketch::{self, Contest, Early, FLOODS, Findings, Kind, Size};
use throttlekit_verify::throttle::{self, Convergence};

const UNITS: u64 = 1_000_000_000;
const THREADS: usize = 2;
/// The number of scenarios that a thread takes at once, and the requests of each.
const CHUNK: u64 = 20;
const ASKS: u64 = 20_000;
const SIZE: Size = Size { scenarios: 0, asks: 0, secrets: 100_000, fleets: 20, thread_asks: 1_000_000 };
/// Seeded bugs show in fewer scenarios.
const SEEDED_SIZE: Size =
    Size { scenarios: 300, asks: 2_000, secrets: 3_000, fleets: 3, thread_asks: 100_000 };
const CONTEST_SECRETS: u64 = 10;
const HISTORIES: u64 = 5_000;
const SEEDED_HISTORIES: u64 = 50;
/// The size for ε 0.01 and δ 0.001.
const BYTES: usize = 7_616;

/// The findings beside the floods.
struct Rest {
    early: Vec<Early>,
    contests: Vec<Contest>,
    convergence: Vec<Convergence>,
    seeded: Found,
    violations: Vec<String>,
}

/// Runs every experiment. Fails if an invariant is broken or a seeded bug is not found.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let units = options.number("--cases", UNITS)?;
    let floods = flooded(units);
    let rest = Rest::found();
    tell(&floods, &rest);
    let figure = figure(&floods, &rest);
    run.seeded(rest.seeded);
    run.violated(floods.violations);
    run.violated(rest.violations);
    if bytes() != BYTES {
        run.violated([format!("ε 0.01 and δ 0.001 take {} bytes, not {BYTES}", bytes())]);
    }
    Ok(figure)
}

/// Runs scenarios of floods against both limiters until this many units were offered.
fn flooded(units: u64) -> Findings {
    let (next, offered) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let mut found = Findings::default();
        while offered.load(Relaxed) < units && found.violations.is_empty() {
            let chunk = next.fetch_add(1, Relaxed);
            let kind = Kind::ALL[(chunk % 2) as usize];
            let scenarios = chunk / 2 * CHUNK..(chunk / 2 + 1) * CHUNK;
            let here =
                sketch::examine_scenarios(kind, scenarios, ASKS, |config| sketch::shipped(kind, config));
            let so_far = offered.fetch_add(here.tally.offered, Relaxed);
            if io::stderr().is_terminal() {
                eprint!("\roffered {so_far:>12}\r");
            }
            found.add(here);
        }
        found
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let mut all = Findings::default();
        workers.into_iter().for_each(|worker| all.add(worker.join().expect("a check does not panic")));
        all
    })
}

impl Rest {
    fn found() -> Self {
        thread::scope(|scope| {
            let errors = scope.spawn(|| {
                let of =
                    |kind| sketch::early_denials(kind, SIZE.secrets, |config| sketch::shipped(kind, config));
                Kind::ALL.map(of).concat()
            });
            let seeded = sketch::find_seeded(SEEDED_SIZE).merge(throttle::find_seeded(SEEDED_HISTORIES));
            let contest = |(attackers, quiet)| sketch::contest(attackers, quiet, CONTEST_SECRETS);
            let contests = FLOODS.map(contest).into();
            let (convergence, mut violations) = throttle::examine(HISTORIES, throttle::shipped);
            violations.extend(sketch::examine_rest(SIZE));
            let early = errors.join().expect("a check does not panic");
            violations.extend(early.iter().filter_map(|early| early.check().err()));
            Self { early, contests, convergence, seeded, violations }
        })
    }
}

fn tell(floods: &Findings, rest: &Rest) {
    let tally = floods.tally;
    println!(
        "floods: {} asks in {} windows, {} units offered and {} admitted where limits are ordinary",
        tally.asks, tally.windows, tally.offered, tally.admitted
    );
    println!(
        "        {} asks denied early, 0 keys admitted beyond their limit unless told below",
        tally.early
    );
    println!(
        "\n{:<8}{:>9}  {:<18}{:>10}{:>8}{:>12}{:>12}",
        "error", "shape", "load", "secrets", "over", "frequency", "allowed"
    );
    for row in &rest.early {
        let shape = format!("{}×{}", row.shape.width(), row.shape.depth());
        let kind = format!("{:?}", row.kind).to_lowercase();
        println!(
            "{kind:<8}{shape:>9}  {:<18}{:>10}{:>8}{:>12.6}{:>12.6}",
            row.load,
            row.secrets,
            row.over,
            row.frequency(),
            row.delta()
        );
    }
    println!("\n{:>9}{:>8}{:>12}{:>16}{:>16}", "attackers", "quiet", "asks", "early, sketch", "early, flood");
    for row in &rest.contests {
        println!("{:>9}{:>8}{:>12}{:>16}{:>16}", row.attackers, row.quiet, row.asks, row.sketch, row.flood);
    }
    println!("\n{:>8}{:>20}{:>16}", "overload", "accepted/capacity", "sent/accepted");
    for row in &rest.convergence {
        println!("{:>8}{:>20.3}{:>16.3}", row.overload, row.accepted, row.sent);
    }
}

fn figure(floods: &Findings, rest: &Rest) -> Value {
    let rounded = |value: f64| rounded(value, 4);
    let nearest = |early: &Early| early.frequency() / early.delta();
    let quiet: u64 = rest.contests.iter().map(|row| row.asks).sum();
    let part =
        |of: fn(&Contest) -> u64| rounded(rest.contests.iter().map(of).sum::<u64>() as f64 / quiet as f64);
    json!({
        "offered_units": floods.tally.offered,
        "asks": floods.tally.asks,
        "windows": floods.tally.windows,
        "bytes": bytes(),
        "error_to_allowed_max": rounded(rest.early.iter().map(nearest).fold(0.0, f64::max)),
        "early_part_sketch": part(|row| row.sketch),
        "early_part_flood": part(|row| row.flood),
        "sent_to_accepted_max": rounded(rest.convergence.iter().map(|row| row.sent).fold(0.0, f64::max)),
        "accepted_to_capacity_min": rounded(rest.convergence.iter().map(|row| row.accepted).fold(9.0, f64::min)),
    })
}

fn bytes() -> usize {
    Shape::for_error(0.01, 0.001).map_or(0, Shape::bytes)
}
