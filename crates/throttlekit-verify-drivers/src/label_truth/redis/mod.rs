//! Redis with every known kind of memory loss, while strict and leasing callers of several stores go on.

mod bugs;
mod cost;
mod faults;
mod load;
mod replica_pair;

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use throttlekit_redis::Failover;

use super::Plan;
use crate::label_row::Row;
use bugs::{BUGS, Bug};
use faults::Fault;
use replica_pair::ReplicaPair;

const ENGINE: &str = "redis";

/// A protection against lost charges, and its guarantee.
#[derive(Clone, Copy)]
pub(super) struct Mode {
    name: &'static str,
    failover: Failover,
    faults: &'static [Fault],
    /// Many decisions on new keys are in flight at any time.
    busy: bool,
    /// Returns `true` if the limit itself holds under this fault.
    keeps_limit: fn(Fault) -> bool,
}

impl Mode {
    /// Returns `true` if the mode denies where it is in doubt, instead of a weaker label.
    fn is_fence(self) -> bool {
        matches!(self.failover, Failover::Fence { .. })
    }

    /// Returns `true` if nothing is charged that the replica has not acknowledged.
    fn waits(self) -> bool {
        matches!(self.failover, Failover::Wait { .. })
    }

    /// Returns `true` if decisions after the fault stay exact.
    fn stays_exact(self, fault: Fault) -> bool {
        self.is_fence() || (self.keeps_limit)(fault)
    }
}

pub(super) const ASYNC: Mode = Mode {
    name: "async",
    failover: Failover::Async { sample: None },
    faults: &Fault::ALL,
    busy: false,
    keeps_limit: |_| false,
};
/// Checks for evictions follow decisions, one for many.
pub(super) const BUSY: Mode = Mode {
    name: "busy",
    faults: &[Fault::FlushAll, Fault::EvictVolatile, Fault::EvictAll, Fault::EvictUnchecked, Fault::Promote],
    busy: true,
    ..ASYNC
};
const SAMPLED: Mode = Mode {
    name: "sampled",
    failover: Failover::Async { sample: Some(Duration::from_millis(5)) },
    faults: &[Fault::FlushAll, Fault::EvictVolatile, Fault::Promote],
    busy: false,
    keeps_limit: |_| false,
};
const WAIT: Mode = Mode {
    name: "wait",
    failover: Failover::Wait { replicas: 1, within: Duration::from_millis(200) },
    faults: &[Fault::FlushAll, Fault::Restart, Fault::Promote],
    busy: false,
    keeps_limit: |fault| matches!(fault, Fault::Promote),
};
pub(super) const FENCE: Mode = Mode {
    name: "fence",
    failover: Failover::Fence { isolation: Duration::from_secs(1) },
    faults: &Fault::ALL,
    busy: false,
    keeps_limit: |_| true,
};

/// Returns the names of the seeded bugs.
pub(super) fn seeded() -> Vec<&'static str> {
    crate::runner::names(Bug::ALL)
}

/// Runs every mode with every fault that applies to it, and every seeded bug. Each mode has servers of its
/// own, so that all can run concurrently: most of a round is waiting.
pub(super) async fn rows(plan: Plan) -> Result<Vec<Row>> {
    let of_mode = |mode: Mode| mode.faults.iter().map(move |&fault| (mode, fault, None)).collect::<Vec<_>>();
    let mut scenarios: Vec<Vec<Scenario>> = [ASYNC, BUSY, SAMPLED, WAIT, FENCE].map(of_mode).to_vec();
    scenarios.push(BUGS.map(|(mode, fault, bug)| (mode, fault, Some(bug))).to_vec());
    let mut pairs = Vec::new();
    for _ in &scenarios {
        // One after the other, or two would find the same port free.
        pairs.push(ReplicaPair::start().await?);
    }
    let played = pairs.into_iter().zip(scenarios);
    let rows = try_join_all(played.map(|(pair, scenarios)| play_all(pair, scenarios, plan))).await?;
    Ok(rows.into_iter().flatten().collect())
}

type Scenario = (Mode, Fault, Option<Bug>);

async fn play_all(mut pair: ReplicaPair, scenarios: Vec<Scenario>, plan: Plan) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (mode, fault, bug) in scenarios {
        rows.push(play(&mut pair, mode, fault, bug, plan).await?);
    }
    Ok(rows)
}

/// Returns the cost of the evidence in each script, as ratios.
pub(super) async fn cost() -> Result<serde_json::Value> {
    let cost = cost::measure().await?;
    println!(
        "{ENGINE:<10}cost: a script with the evidence takes {:.2} of the server's time without it; where the key is new {:.2}, \
         and {:.2} if a check for evictions follows for many",
        cost.known_key, cost.new_key, cost.new_key_deferred
    );
    Ok(
        serde_json::json!({ "known_key": cost.known_key, "new_key": cost.new_key, "new_key_deferred": cost.new_key_deferred }),
    )
}

async fn play(pair: &mut ReplicaPair, mode: Mode, fault: Fault, bug: Option<Bug>, plan: Plan) -> Result<Row> {
    let mut row = Row::new(ENGINE, mode.name, fault.name());
    row.seeded = bug.map(Bug::name);
    row.keeps_limit = (mode.keeps_limit)(fault);
    row.must_lose = !row.keeps_limit && fault.loses();
    row.shown_by_exact = bug == Some(Bug::MarkIgnored);
    let rounds = if bug.is_some() { plan.rounds_seeded } else { plan.rounds };
    for number in 0..rounds {
        let what = || format!("{} {} round {number}", mode.name, fault.name());
        row.add(pair.play(mode, fault, bug).await.with_context(what)?);
        if row.is_found() {
            break;
        }
        if (number + 1) % 20 == 0 {
            eprintln!("{} {}: {} of {rounds}", mode.name, fault.name(), number + 1);
        }
    }
    row.print();
    Ok(row)
}
