//! Several token budgets that one call draws on: in memory beside a model, on every engine with many callers at once.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit::clock::{Clock, WallClock};
use throttlekit::store::Store;
use throttlekit_postgres::{Durability, PostgresStore};
use throttlekit_redis::RedisStore;
use tokio::task::JoinSet;

use crate::runner::{Options, Run, Services, hunt, in_parallel, progress};
use throttlekit_verify::budget_tree::{self, Played};

const CASES: u64 = 100_000;
const ENGINE_CASES: u64 = 10_000;
const SEEDED_CASES_MAX: u64 = 5_000;
/// Scenarios that a thread takes at once.
const CHUNK: u64 = 500;
/// Scenarios that are played on an engine at the same time, on keys of their own.
const SCENARIOS_AT_ONCE: usize = 32;
/// Long, because decisions are checked and not the speed of an engine.
const DEADLINE: Duration = Duration::from_secs(30);

/// Plays the scenarios. Fails on any violation, on a situation that never occurred, and on a seeded bug that is not
/// found.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let (cases, seed) = (options.number("--cases", CASES)?, options.number("--seed", 0)?);
    let engine_cases = options.number("--engine-cases", ENGINE_CASES.min(cases))?;
    let chunk = |at: u64| -> Range<u64> {
        let begin = seed.saturating_add(at * CHUNK);
        begin..begin.saturating_add(CHUNK.min(cases - at * CHUNK))
    };
    let mut memory = Played::default();
    for played in
        in_parallel(cases.div_ceil(CHUNK), "chunks of scenarios", |at| budget_tree::examine(chunk(at)))
    {
        match played {
            Ok(one) => memory.add(&one),
            Err(violation) => run.violated([format!("memory: {violation}")]),
        }
    }
    println!("memory: {memory:?}");
    run.violated(memory.missing().into_iter().map(|name| format!("{name}: no scenario had it")));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let engines = runtime.block_on(on_engines(run, engine_cases))?;
    let (found, took) = hunt("cases", |bug| budget_tree::find_seeded(bug, SEEDED_CASES_MAX));
    run.seeded(found);
    Ok(json!({
        "scenarios": memory.scenarios,
        "engine_scenarios": engines.scenarios,
        "debits": memory.debits + engines.debits,
        "admitted": memory.admitted + engines.admitted,
        "denied": memory.denied + engines.denied,
        "crossed": memory.crossed + engines.crossed,
        "seeded_cases_max": took.into_iter().max(),
    }))
}

async fn on_engines(run: &mut Run, cases: u64) -> Result<Played> {
    let services = run.services();
    let mut all = Played::default();
    let redis = services.address("redis", "THROTTLEKIT_REDIS")?;
    let redis = RedisStore::builder(&*redis).deadline(DEADLINE).connect().await?;
    all.add(&on_engine("redis", redis, cases, run).await);
    let cluster = services.address("cluster", "THROTTLEKIT_REDIS_CLUSTER")?;
    let cluster = RedisStore::cluster(cluster.split(',')).deadline(DEADLINE).connect().await?;
    all.add(&on_engine("cluster", cluster, cases, run).await);
    all.add(&on_engine("postgres", postgres(services).await?, cases, run).await);
    Ok(all)
}

async fn postgres(services: Services) -> Result<PostgresStore> {
    let address = services.address("postgres", "THROTTLEKIT_POSTGRES")?;
    let builder = PostgresStore::builder(&*address).deadline(DEADLINE).durability(Durability::Deferred);
    Ok(builder.migrate_on_connect(true).connect().await?)
}

async fn on_engine<S: Store>(engine: &'static str, store: S, cases: u64, run: &mut Run) -> Played {
    let (store, begun, next) = (Arc::new(store), WallClock.now().as_nanos(), Arc::new(AtomicU64::new(0)));
    let mut workers = JoinSet::new();
    for _ in 0..SCENARIOS_AT_ONCE {
        let (store, next) = (store.clone(), next.clone());
        workers.spawn(async move {
            let (mut played, mut broken) = (Played::default(), Vec::new());
            loop {
                let seed = next.fetch_add(1, Relaxed);
                if seed >= cases {
                    return (played, broken);
                }
                match budget_tree::examine_at_once(&store, &format!("tree-{begun:x}-{seed}"), seed).await {
                    Ok(one) => played.add(&one),
                    Err(violation) => broken.push(format!("{engine}: {violation}")),
                }
                progress(engine, seed + 1, cases);
            }
        });
    }
    let mut all = Played::default();
    for (played, broken) in workers.join_all().await {
        all.add(&played);
        run.violated(broken);
    }
    println!("{engine}: {all:?}");
    run.violated(all.missing().into_iter().map(|name| format!("{engine}: {name}: no scenario had it")));
    all
}
