//! The overshoot of a token budget: gateways and streams on every shared store, every seeded bug found.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit::clock::{Clock, WallClock};
use throttlekit::store::{MemoryStore, Store};
use throttlekit_postgres::{Durability, PostgresStore};
use throttlekit_redis::RedisStore;

use crate::runner::{Options, Run, Services};
use throttlekit_verify::budget::{self, Chunks, Seen, Setup, Way};

const GATEWAYS: [u64; 4] = [1, 2, 8, 32];
const STREAMS: [u64; 3] = [1, 8, 64];
const LARGEST: [u64; 2] = [7, 64];
/// Connections to each store, which the gateways share: a server accepts a hundred by default.
const WAYS: usize = 4;
const CONNECTIONS: usize = 2;
/// Long, because the decisions of an engine are checked and not its speed: it shares its processors with the
/// verification.
const DEADLINE: Duration = Duration::from_secs(30);

/// One configuration and its result.
struct Fleet {
    store: &'static str,
    setup: Setup,
    seen: Seen,
    violation: Option<String>,
}

/// Runs every configuration on every store. Fails if one breaks the bound, none reaches it, or a seeded bug
/// is not found.
pub(crate) fn run(_: &Options<'_>, run: &mut Run) -> Result<Value> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!(
        "{:<10}{:<8}{:>10}{:>8}{:>10}{:>12}{:>8}{:>8}{:>8}",
        "store", "way", "debits of", "fleets", "debits", "sent again", "beyond", "bound", "reached"
    );
    let fleets = runtime.block_on(on_every_store(run.services()))?;
    run.seeded(runtime.block_on(budget::find_seeded()));
    run.violated(violations(&fleets));
    Ok(figure(&fleets))
}

async fn on_every_store(services: Services) -> Result<Vec<Fleet>> {
    let mut fleets = on_store("memory", vec![Arc::new(MemoryStore::new())]).await;
    fleets.extend(on_store("redis", redis(services, "redis", "THROTTLEKIT_REDIS").await?).await);
    fleets.extend(on_store("cluster", redis(services, "cluster", "THROTTLEKIT_REDIS_CLUSTER").await?).await);
    fleets.extend(on_store("valkey", redis(services, "valkey", "THROTTLEKIT_VALKEY").await?).await);
    fleets.extend(on_store("postgres", postgres(services).await?).await);
    Ok(fleets)
}

async fn redis(services: Services, name: &str, variable: &str) -> Result<Vec<Arc<RedisStore>>> {
    let address = services.address(name, variable)?;
    let mut ways = Vec::new();
    for _ in 0..WAYS {
        let builder = match name {
            "cluster" => RedisStore::cluster(address.split(',')),
            _ => RedisStore::builder(&*address),
        };
        ways.push(Arc::new(builder.deadline(DEADLINE).connect().await?));
    }
    Ok(ways)
}

async fn postgres(services: Services) -> Result<Vec<Arc<PostgresStore>>> {
    let address = services.address("postgres", "THROTTLEKIT_POSTGRES")?;
    let mut ways = Vec::new();
    for _ in 0..WAYS {
        let builder = PostgresStore::builder(&*address).deadline(DEADLINE).connections(CONNECTIONS);
        let builder = builder.durability(Durability::Deferred).migrate_on_connect(true);
        ways.push(Arc::new(builder.connect().await?));
    }
    Ok(ways)
}

async fn on_store<S: Store>(store: &'static str, ways: Vec<Arc<S>>) -> Vec<Fleet> {
    let run = WallClock.now().as_nanos();
    let setups = budget::setups(&GATEWAYS, &STREAMS, &LARGEST);
    let mut fleets = Vec::new();
    for (i, setup) in setups.iter().enumerate() {
        progress(store, i, setups.len());
        let seen = budget::run(&ways, &format!("budget-{run:x}-{i}"), *setup).await;
        fleets.push(Fleet { store, setup: *setup, seen, violation: setup.check(&seen).err() });
    }
    tell(store, &fleets);
    fleets
}

fn progress(store: &str, done: usize, all: usize) {
    if io::stderr().is_terminal() {
        eprint!("\r{store}: {done} of {all} fleets\r");
    } else if done.is_multiple_of(48) {
        eprintln!("{store}: {done} of {all} fleets");
    }
}

/// Prints a line for each mode and size of debits.
fn tell(store: &str, fleets: &[Fleet]) {
    let mut kinds: Vec<(Way, Chunks)> = Vec::new();
    for Fleet { setup, .. } in fleets {
        if !kinds.contains(&(setup.way, setup.chunks)) {
            kinds.push((setup.way, setup.chunks));
        }
    }
    for (way, chunks) in kinds {
        let of_kind = || fleets.iter().filter(|f| (f.setup.way, f.setup.chunks) == (way, chunks));
        let sum = |part: fn(&Seen) -> u64| of_kind().map(|fleet| part(&fleet.seen)).sum::<u64>();
        let size = match chunks {
            Chunks::Of(tokens) => tokens.to_string(),
            Chunks::UpTo(tokens) => format!("1 to {tokens}"),
        };
        println!(
            "{store:<10}{:<8}{size:>10}{:>8}{:>10}{:>12}{:>8}{:>8}{:>8}",
            format!("{way:?}").to_lowercase(),
            of_kind().count(),
            sum(|seen| seen.debits),
            sum(|seen| seen.again),
            of_kind().map(beyond).max().unwrap_or(0),
            chunks.largest() - 1,
            of_kind().filter(|fleet| fleet.setup.is_tight(&fleet.seen)).count(),
        );
    }
    fleets
        .iter()
        .filter_map(|fleet| fleet.violation.as_ref())
        .for_each(|counterexample| println!("  {counterexample}"));
}

fn beyond(fleet: &Fleet) -> u64 {
    fleet.seen.told.max(fleet.seen.charged).saturating_sub(fleet.seen.budget)
}

fn figure(fleets: &[Fleet]) -> Value {
    let mut stores: Vec<&str> = fleets.iter().map(|fleet| fleet.store).collect();
    stores.dedup();
    let per_token = fleets.iter().filter(|fleet| fleet.setup.chunks.largest() == 1);
    json!({
        "stores": stores,
        "fleets": fleets.len(),
        "gateways_max": GATEWAYS.iter().max(),
        "streams_max": STREAMS.iter().max(),
        "debits": fleets.iter().map(|fleet| fleet.seen.debits).sum::<u64>(),
        "sent_again": fleets.iter().map(|fleet| fleet.seen.again).sum::<u64>(),
        "overshoot_per_token": per_token.map(beyond).max(),
        "overshoot_max": fleets.iter().map(beyond).max(),
        "debit_max": LARGEST.iter().max(),
        "at_the_bound": fleets.iter().filter(|fleet| fleet.setup.is_tight(&fleet.seen)).count(),
    })
}

/// Returns the violations of the bound. If debits are strict and of one size, the bound must be reached as
/// well.
fn violations(fleets: &[Fleet]) -> Vec<String> {
    let broken = fleets.iter().filter_map(|fleet| fleet.violation.clone());
    let fixed = |f: &&Fleet| f.setup.way == Way::Strict && matches!(f.setup.chunks, Chunks::Of(_));
    let loose = fleets.iter().filter(fixed).filter(|f| !f.setup.is_tight(&f.seen)).map(|fleet| {
        let Fleet { store, setup, seen, .. } = fleet;
        format!("{store}: {setup}: the bound was not reached: {seen:?}")
    });
    broken.chain(loose).collect()
}
