//! Slots held under leases: nothing leaks, no client works in a slot that another holds, and slots of dead
//! clients come back in time.

pub(super) mod cycles;
mod engine;
mod judge;
mod killed;
mod member;
mod reclaim;
mod same;

use anyhow::Result;
use serde_json::{Value, json};

use super::{Part, Setup};
use engine::Engine;

/// The size of each part.
struct Size {
    /// Admissions in process, dropped at every await point.
    cycles: u64,
    /// Traces on each store.
    traces: u64,
    /// Scenarios of holders over a bad network.
    scenarios: u64,
    /// The time for which client processes are killed and stopped, on each engine.
    fault_seconds: u64,
    /// Holders that are killed, each with fifty slots, on each engine.
    killed: u64,
    /// Holders that are stopped until another has their slot, on each engine.
    zombies: u64,
}

const FULL: Size = Size {
    cycles: 2_000_000,
    traces: 20_000,
    scenarios: 200_000,
    fault_seconds: 60,
    killed: 20,
    zombies: 20,
};
const SMALL: Size =
    Size { cycles: 40_000, traces: 100, scenarios: 2_000, fault_seconds: 2, killed: 1, zombies: 1 };

pub(super) fn run(setup: Setup) -> Result<Part> {
    // A client process of this verification is this program again.
    if let Some(post) = member::post() {
        member::run(&post)?;
        std::process::exit(0);
    }
    let size = if setup.small { SMALL } else { FULL };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut part = Part::default();
    let cycles = cycles::run(size.cycles, &mut part)?;
    let engines = Engine::all(setup.services)?;
    let same = runtime.block_on(same::run(&engines, size.traces, size.scenarios, &mut part))?;
    // Both at once: most of the time is waiting.
    let mut running = tokio::task::JoinSet::new();
    for engine in engines.into_iter().filter(Engine::has_processes) {
        running.spawn_on(processes(engine, size.fault_seconds, size.killed, size.zombies), runtime.handle());
    }
    let mut fleets = serde_json::Map::new();
    while let Some(ended) = runtime.block_on(running.join_next()) {
        let (name, figure, found) = ended??;
        fleets.insert(name, figure);
        part.broken.extend(found);
    }
    part.figure = json!({ "cycles": cycles, "same": same, "processes": fleets });
    Ok(part)
}

/// Runs client processes on one engine.
async fn processes(
    engine: Engine,
    seconds: u64,
    killed: u64,
    zombies: u64,
) -> Result<(String, Value, Vec<String>)> {
    let mut broken = Vec::new();
    let faulty = killed::run(&engine, seconds, &mut broken).await?;
    let reclaim = reclaim::run(&engine, killed, zombies, &mut broken).await?;
    Ok((engine.name, json!({ "storm": faulty, "reclaim": reclaim }), broken))
}
