//! Limits whose numbers change: on every shared store exactly the used units count under the new numbers, and
//! every seeded bug is found.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use throttlekit::clock::{Clock, PreciseClock};

use crate::runner::{Options, Run, progress, search};
use crate::stores::{Engine, addresses, engines};
use throttlekit_verify::reload::{ReloadBug, ReloadReport, find_reload_bug};

/// The number of cases in memory. Engines run one in [`ENGINE_PART`] of them.
const CASES: u64 = 200_000;
const ENGINE_PART: u64 = 50;
const SEEDED_CASES_MAX: u64 = 20_000;
const CHUNK: u64 = 1_000;

struct Proof {
    name: &'static str,
    report: ReloadReport,
    violation: Option<String>,
    seconds: f64,
}

/// Runs traces with changes of numbers on every store. Fails on any violation and on any seeded bug not
/// found.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let (cases, only) = (options.number("--cases", CASES)?, options.names("--only"));
    let engines: Vec<Engine> = engines()
        .into_iter()
        .filter(|engine| only.as_ref().is_none_or(|names| names.contains(&engine.name)))
        .collect();
    ensure!(!engines.is_empty(), "no store of these names");
    let addresses = addresses(&engines, run.services())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!(
        "{:<12}{:>8}{:>10}{:>10}{:>12}{:>12}{:>9}{:>12}{:>9}",
        "store", "cases", "changes", "judged", "other pace", "waits", "loans", "violations", "seconds"
    );
    let verify = |(engine, address): (&Engine, String)| {
        let share =
            if engine.name == "memory" { cases } else { (cases / ENGINE_PART).max(cases.min(CHUNK) / 10) };
        tell(runtime.block_on(play(engine, &address, share)))
    };
    let proofs: Vec<Proof> = engines.iter().zip(addresses).map(verify).collect();
    run.seeded(search("cases", ReloadBug::ALL, |bug| {
        runtime.block_on(find_reload_bug(bug, SEEDED_CASES_MAX))
    }));
    for Proof { name, report, violation, .. } in &proofs {
        run.violated(violation.as_ref().map(|violation| format!("on {name}: {violation}")));
        let idle = report.at_other_pace == 0 || report.waits == 0;
        run.violated(idle.then(|| format!("no case requested at another pace on {name}")));
    }
    Ok(figure(&proofs))
}

async fn play(engine: &Engine, address: &str, cases: u64) -> Proof {
    let clock = PreciseClock::new();
    let (begun, mut report, mut violation, mut next) = (clock.now(), ReloadReport::default(), None, 0);
    while next < cases && violation.is_none() {
        let seeds = next..(next + CHUNK).min(cases);
        next = seeds.end;
        match (engine.reload)(address.to_owned(), seeds).await {
            Ok(played) => report.add(&played),
            Err(found) => violation = Some(found.to_string()),
        }
        progress(engine.name, next, cases);
    }
    Proof { name: engine.name, report, violation, seconds: clock.now().since(begun).as_secs_f64() }
}

fn tell(proof: Proof) -> Proof {
    let Proof { name, report, violation, seconds } = &proof;
    let ReloadReport { scenarios, changes, judged, at_other_pace, waits, lent, .. } = report;
    println!(
        "{name:<12}{scenarios:>8}{changes:>10}{judged:>10}{at_other_pace:>12}{waits:>12}{lent:>9}{:>12}{seconds:>9.1}",
        usize::from(violation.is_some())
    );
    if let Some(violation) = violation {
        println!("  {violation}");
    }
    proof
}

fn figure(proofs: &[Proof]) -> Value {
    let sum = |of: fn(&ReloadReport) -> u64| proofs.iter().map(|proof| of(&proof.report)).sum::<u64>();
    json!({
        "stores": proofs.iter().map(|proof| proof.name).collect::<Vec<_>>(),
        "cases": sum(|report| report.scenarios),
        "changes": sum(|report| report.changes),
        "judged": sum(|report| report.judged),
        "at_other_pace": sum(|report| report.at_other_pace),
    })
}
