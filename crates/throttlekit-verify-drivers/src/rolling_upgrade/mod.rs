//! A rolling upgrade under load: three servers over one Redis are replaced one after another, as Kubernetes does it
//! (readiness fails, a delay, a drain), while clients of every kind call them. No call fails, no unit is lost, and none is
//! charged twice.

mod accounts;
mod load;
mod replicas;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit_conformance::bugs;
use tokio::time::sleep;

use crate::failover::servers::Server;
use crate::runner::{Options, Run, names, search};
use crate::serving::program;
use accounts::{Accounts, Outcome};
use load::Load;
use replicas::{Replicas, Stop};

const UPGRADES: u64 = 20;
const UPGRADES_SMALL: u64 = 1;
/// Clients call for this long before the first server stops, and after the last one is back.
const STEADY: Duration = Duration::from_millis(500);
/// Failed calls that are printed.
const SHOWN: usize = 5;

bugs! {
    /// Upgrades and clients that lose calls or units.
    pub(crate) enum Bug {
        Killed: "Servers are killed, not stopped.",
        NoDelay: "Servers do not go on serving while they are not ready.",
        AnotherStore: "A new server counts in another database.",
        SentTwice: "A client sends a debit again under another number.",
        HeldTooLong: "A client does not release a permit.",
    }
}

/// Returns the names of the seeded bugs.
pub(crate) fn seeded() -> Vec<&'static str> {
    names(Bug::ALL)
}

/// Upgrades all servers again and again. Fails if a call failed or the store counted another number of units than the
/// clients got, and if a seeded bug was not found.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let small = options.has("--small");
    let upgrades = options.number("--cases", if small { UPGRADES_SMALL } else { UPGRADES })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(play(upgrades, None))?;
    outcome.print();
    run.violated(outcome.violations());
    let mut failed = None;
    let found = search("calls", Bug::ALL, |bug| match runtime.block_on(play(1, Some(bug))) {
        Ok(outcome) => outcome.shows(bug).then_some(outcome.calls()),
        Err(error) => {
            failed.get_or_insert(error);
            None
        }
    });
    run.seeded(found);
    failed.map_or(Ok(()), Err)?;
    Ok(
        json!({ "upgrades": upgrades, "restarts": upgrades * replicas::COUNT as u64, "outcome": outcome.figure() }),
    )
}

/// Runs clients while every server is replaced this many times.
async fn play(upgrades: u64, bug: Option<Bug>) -> Result<Outcome> {
    let store = Server::start("redis-server").await?;
    let mut replicas = Replicas::start(&program()?, &store.address(), bug).await?;
    let accounts = Arc::new(Accounts::default());
    let load = Load::start(replicas.places(), &replicas.readiness(), &accounts, bug)?;
    sleep(STEADY).await;
    for upgrade in 0..upgrades {
        for place in 0..replicas::COUNT {
            let stop = if bug == Some(Bug::Killed) { Stop::Killed } else { Stop::InOrder };
            replicas.replace(place, stop).await?;
        }
        if (upgrade + 1).is_multiple_of(5) {
            eprintln!("{} of {upgrades} upgrades", upgrade + 1);
        }
    }
    sleep(STEADY).await;
    load.finish().await;
    // What servers have leased goes back to the store when they stop.
    let counted = replicas.settle().await?;
    Ok(accounts.outcome(counted))
}
