//! One trace, one stream of responses: the same scenarios on every shared store, every seeded bug found.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use throttlekit::clock::{Clock, PreciseClock};
use throttlekit::store::MemoryStore;
use throttlekit_conformance::Difference;
use throttlekit_conformance::invariants::Violation;
use throttlekit_conformance::regions::{PoolReport, examine_pool};
use throttlekit_conformance::stores::{
    StoreBug, StoreReport, examine_store, examine_vectors, find_store_bug,
};
use throttlekit_postgres::{Durability, PostgresStore};
use throttlekit_redis::RedisStore;

use crate::runner::{Options, Run, Services, progress, search};
use throttlekit_verify::reload::{ReloadReport, examine_reload};

const TRACES: u64 = 100_000;
const SEEDED_SCENARIOS_MAX: u64 = 10_000;
/// Traces between two progress reports.
const CHUNK: u64 = 1_000;
/// Long, because the decisions of an engine are checked and not its speed: it shares its processors with the
/// verification.
const DEADLINE: Duration = Duration::from_secs(30);
/// Longer than any scenario takes, since an engine forgets by its own clock and a scenario has another.
const GRACE: Duration = Duration::from_secs(600);

/// The connections of each of the stores that run at once; a server accepts a hundred by default.
const CONNECTIONS: usize = 2;

pub(crate) type Proving<T> = Pin<Box<dyn Future<Output = T>>>;

/// A store to verify: its name, which is also that of its service, and a function that runs traces on it.
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    /// The environment variable with its address; empty if it is in this process.
    variable: &'static str,
    scenarios: fn(String, Range<u64>) -> Proving<Result<StoreReport, Violation>>,
    vectors: fn(String) -> Proving<Result<StoreReport, Difference>>,
    /// The same for its pools of regions.
    pub(crate) pools: fn(String, Range<u64>) -> Proving<Result<PoolReport, Violation>>,
    /// The same for limits whose numbers change.
    pub(crate) reload: fn(String, Range<u64>) -> Proving<Result<ReloadReport, Violation>>,
}

/// Defines an engine from a constructor of its store, given an address and a clock.
macro_rules! engine {
    ($name:literal, $variable:literal, |$address:ident, $clock:ident| $make:expr) => {{
        Engine {
            name: $name,
            variable: $variable,
            scenarios: |address, seeds| {
                let make = move |$clock| {
                    let $address = address.clone();
                    async move { $make }
                };
                Box::pin(examine_store(make, seeds))
            },
            vectors: |address| {
                let make = move |$clock| {
                    let $address = address.clone();
                    async move { $make }
                };
                Box::pin(examine_vectors(make))
            },
            pools: |address, seeds| {
                let make = move |$clock| {
                    let $address = address.clone();
                    async move { $make }
                };
                Box::pin(examine_pool(make, seeds))
            },
            reload: |address, seeds| {
                let make = move |$clock| {
                    let $address = address.clone();
                    async move { $make }
                };
                Box::pin(examine_reload(make, seeds))
            },
        }
    }};
}

pub(crate) fn engines() -> [Engine; 5] {
    [
        engine!("memory", "", |_address, clock| Ok(MemoryStore::with_clock(clock).memory_budget(1 << 20))),
        engine!("redis", "THROTTLEKIT_REDIS", |address, clock| {
            RedisStore::builder(address).clock(clock).deadline(DEADLINE).grace(GRACE).connect().await
        }),
        engine!("cluster", "THROTTLEKIT_REDIS_CLUSTER", |address, clock| {
            RedisStore::cluster(address.split(','))
                .clock(clock)
                .deadline(DEADLINE)
                .grace(GRACE)
                .connect()
                .await
        }),
        engine!("valkey", "THROTTLEKIT_VALKEY", |address, clock| {
            RedisStore::builder(address).clock(clock).deadline(DEADLINE).grace(GRACE).connect().await
        }),
        engine!("postgres", "THROTTLEKIT_POSTGRES", |address, clock| {
            PostgresStore::builder(address)
                .clock(clock)
                .deadline(DEADLINE)
                .connections(CONNECTIONS)
                .durability(Durability::Deferred)
                .migrate_on_connect(true)
                .connect()
                .await
        }),
    ]
}

struct Plan<'a> {
    /// The first seed. Zero runs the golden suites and vectors too.
    from: u64,
    traces: u64,
    only: Option<Vec<&'a str>>,
}

/// The result of one engine.
struct Proof {
    name: &'static str,
    report: StoreReport,
    difference: Option<String>,
    seconds: f64,
}

/// Verifies every engine. Fails on any difference, on any bug not found, and on anything not covered.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let plan = Plan {
        from: options.number("--seed", 0)?,
        traces: options.number("--cases", TRACES)?,
        only: options.names("--only"),
    };
    let engines = chosen(&plan)?;
    let addresses = addresses(&engines, run.services())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!(
        "{:<12}{:>10}{:>12}{:>12}{:>13}{:>9}",
        "store", "timelines", "answers", "states", "differences", "seconds"
    );
    let proofs: Vec<Proof> = engines
        .iter()
        .zip(addresses)
        .map(|(engine, address)| tell(runtime.block_on(verify(engine, &address, &plan))))
        .collect();
    run.seeded(search("timelines", StoreBug::ALL, |bug| {
        runtime.block_on(find_store_bug(bug, SEEDED_SCENARIOS_MAX))
    }));
    tell_features(&proofs);
    run.violated(violations(&proofs, plan.traces));
    Ok(figure(&proofs))
}

fn chosen(plan: &Plan<'_>) -> Result<Vec<Engine>> {
    let Some(names) = &plan.only else { return Ok(engines().into()) };
    let known = engines().map(|engine| engine.name);
    if let Some(stranger) = names.iter().find(|name| !known.contains(name)) {
        bail!("no store is called {stranger:?}; there are {}", known.join(", "));
    }
    Ok(engines().into_iter().filter(|engine| names.contains(&engine.name)).collect())
}

/// Returns the addresses of the engines: from the environment, or after starting those it does not name.
pub(crate) fn addresses(engines: &[Engine], services: Services) -> Result<Vec<String>> {
    let known = |engine: &Engine| std::env::var(engine.variable).ok().filter(|_| !engine.variable.is_empty());
    let missing: Vec<&str> = engines
        .iter()
        .filter(|engine| !engine.variable.is_empty() && known(engine).is_none())
        .map(|engine| engine.name)
        .collect();
    let started = if missing.is_empty() { Vec::new() } else { services.up(&missing)? };
    let address = |engine: &Engine| {
        let from = started.iter().find(|(name, _)| *name == engine.variable).map(|(_, value)| value.clone());
        known(engine).or(from).unwrap_or_default()
    };
    Ok(engines.iter().map(address).collect())
}

async fn verify(engine: &Engine, address: &str, options: &Plan<'_>) -> Proof {
    let clock = PreciseClock::new();
    let begun = clock.now();
    let (report, difference) = match play(engine, address, options).await {
        Ok(report) => (report, None),
        Err((report, difference)) => (report, Some(difference)),
    };
    Proof { name: engine.name, report, difference, seconds: clock.now().since(begun).as_secs_f64() }
}

/// Returns what agreed, and with an error the first difference.
async fn play(
    engine: &Engine,
    address: &str,
    options: &Plan<'_>,
) -> Result<StoreReport, (StoreReport, String)> {
    let mut report = StoreReport::default();
    if options.from == 0 {
        let vectors = (engine.vectors)(address.to_owned()).await;
        report.add(vectors.map_err(|difference| (StoreReport::default(), difference.to_string()))?);
    }
    let end = options.from.saturating_add(options.traces);
    let mut next = options.from;
    while next < end {
        let seeds = next..(next + CHUNK).min(end);
        next = seeds.end;
        match (engine.scenarios)(address.to_owned(), seeds).await {
            Ok(played) => report.add(played),
            Err(violation) => return Err((report, violation.to_string())),
        }
        progress(engine.name, next - options.from, options.traces);
    }
    Ok(report)
}

fn tell(proof: Proof) -> Proof {
    let Proof { name, report, difference, seconds } = &proof;
    let StoreReport { traces, answers, states, .. } = report;
    let differences = usize::from(difference.is_some());
    println!("{name:<12}{traces:>10}{answers:>12}{states:>12}{differences:>13}{seconds:>9.1}");
    if let Some(difference) = difference {
        println!("  {difference}");
    }
    proof
}

/// Prints the features of the traces. Every engine runs the same, so those of the first finished one are
/// printed.
fn tell_features(proofs: &[Proof]) {
    if let Some(proof) = proofs.iter().find(|proof| proof.difference.is_none()) {
        print!("{}", proof.report);
        proof.report.left_out.iter().for_each(|left_out| println!("left out: {left_out}"));
    }
}

fn figure(proofs: &[Proof]) -> Value {
    let agreed = proofs.iter().map(|proof| proof.report.traces).min().unwrap_or(0);
    json!({
        "stores": proofs.iter().map(|proof| proof.name).collect::<Vec<_>>(),
        "timelines_each": agreed,
        "timelines": proofs.iter().map(|proof| proof.report.traces).sum::<u64>(),
        "answers": proofs.iter().map(|proof| proof.report.answers).sum::<u64>(),
        "states": proofs.iter().map(|proof| proof.report.states).sum::<u64>(),
        "differences": proofs.iter().filter(|proof| proof.difference.is_some()).count(),
    })
}

/// Returns the stores that differ, and the features that no trace had.
fn violations(proofs: &[Proof], traces: u64) -> Vec<String> {
    let differing =
        |proof: &Proof| proof.difference.as_ref().map(|how| format!("{} differs: {how}", proof.name));
    let unseen = proofs.iter().flat_map(|proof| proof.report.unseen()).next();
    let unseen =
        unseen.filter(|_| traces >= 2 * CHUNK).map(|feature| format!("no trace contained: {feature}"));
    proofs.iter().filter_map(differing).chain(unseen).collect()
}
