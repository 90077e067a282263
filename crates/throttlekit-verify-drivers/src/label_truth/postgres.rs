//! PostgreSQL servers that lose charges: a standby promoted with stale rows, an older copy restored; and one that is killed
//! and loses nothing.

use std::time::Duration;

use anyhow::Result;
use throttlekit::{Limit, SharedLimiter};
use throttlekit_conformance::bugs;
use throttlekit_postgres::{PostgresStore, SeededBug};

use super::Plan;
use crate::label_row::{Round, Row};
use crate::runner::{beside_each_other, block_on};
use throttlekit_verify::postgres::{LIMIT, Server, Window, crash_round, failover_round, restore_round};

const ENGINE: &str = "postgres";
const MODE: &str = "flushed";
/// Long, so that a busy machine does not make a healthy server look unavailable.
const DEADLINE: Duration = Duration::from_secs(2);
const PROGRESS_EVERY: u64 = 10;
/// The number of rounds after which a cluster is recreated: each leaves a schema behind.
const ROUNDS_PER_SERVER: u64 = 25;

/// A fault of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Three windows: of an existing process, of a new one, and of one that sees two primaries.
    Failover,
    Restore {
        overtaken: bool,
    },
    Kill,
}

const FAULTS: [Fault; 4] =
    [Fault::Failover, Fault::Restore { overtaken: false }, Fault::Restore { overtaken: true }, Fault::Kill];

bugs! {
    /// Bugs of the store that make it label wrongly.
    pub(super) enum Bug {
        LineageIgnored: "Histories are not compared.",
        RowIgnored: "The row of the history is not believed.",
        OtherHostsIgnored: "Other hosts are not looked at.",
        LogIgnored: "The log is not remembered.",
        CheckpointIgnored: "The first checkpoint is not compared.",
    }
}

impl Bug {
    /// Returns the bug of the store, the fault that exposes it, and the index of the window.
    fn shown_by(self) -> (SeededBug, Fault, usize) {
        match self {
            Self::LineageIgnored => (SeededBug::LineageIgnored, Fault::Failover, 0),
            Self::RowIgnored => (SeededBug::RowIgnored, Fault::Failover, 1),
            Self::OtherHostsIgnored => (SeededBug::OtherHostsIgnored, Fault::Failover, 2),
            Self::LogIgnored => (SeededBug::LogIgnored, Fault::Restore { overtaken: false }, 0),
            Self::CheckpointIgnored => (SeededBug::CheckpointIgnored, Fault::Restore { overtaken: true }, 0),
        }
    }
}

/// Runs every fault, then every seeded bug. Rounds mostly wait for servers, so those of one kind run
/// concurrently.
pub(super) async fn rows(plan: Plan) -> Result<Vec<Row>> {
    // A round starts servers several times.
    let rounds = if plan.small { 1 } else { plan.rounds };
    let faults = FAULTS.map(|fault| move || block_on(play(fault, None, rounds)));
    let mut rows = beside_each_other(faults).await?.concat();
    rows.iter().for_each(Row::print);
    let bugs = Bug::ALL.iter().map(|&bug| move || block_on(search(bug, plan.rounds_seeded)));
    let found = beside_each_other(bugs).await?;
    found.iter().for_each(Row::print);
    rows.extend(found);
    Ok(rows)
}

async fn play(fault: Fault, bug: Option<SeededBug>, rounds: u64) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    let mut server = start();
    for number in 0..rounds {
        if number > 0 && number.is_multiple_of(ROUNDS_PER_SERVER) {
            server = start();
        }
        let windows = round(&mut server, fault, bug, number).await;
        if rows.is_empty() {
            rows = windows.iter().map(|(name, _)| row_of(fault, name)).collect();
        }
        rows.iter_mut().zip(&windows).for_each(|(row, (_, window))| row.add(round_of(window)));
        if bug.is_none() && (number + 1).is_multiple_of(PROGRESS_EVERY) {
            eprintln!("{ENGINE} {}: {} of {rounds}", windows[0].0, number + 1);
        }
    }
    Ok(rows)
}

/// Runs rounds until one exposes the bug.
async fn search(bug: Bug, rounds: u64) -> Result<Row> {
    let ((of_store, fault, window), mut row) = (bug.shown_by(), None);
    for _ in 0..rounds {
        let mut played = play(fault, Some(of_store), 1).await?;
        let shown = row.insert(Row { seeded: Some(bug.name()), ..played.swap_remove(window) });
        if shown.is_found() {
            break;
        }
    }
    row.ok_or_else(|| anyhow::anyhow!("a seeded bug is looked for in one round at least"))
}

async fn round(
    server: &mut Server,
    fault: Fault,
    bug: Option<SeededBug>,
    number: u64,
) -> Vec<(&'static str, Window)> {
    let schema = format!("round{number}");
    let make = async |url: &str, limit: Limit| {
        let store = PostgresStore::builder(url).schema(schema.as_str()).deadline(DEADLINE);
        let store = store.migrate_on_connect(true).seeded(bug).connect().await.expect("a usable server");
        SharedLimiter::new(store, "p", limit).expect("a valid limit")
    };
    match fault {
        Fault::Failover => failover_round(server, &make).await.into(),
        Fault::Restore { overtaken } => vec![restore_round(server, overtaken, &make).await],
        Fault::Kill => vec![crash_round(server, &make).await],
    }
}

fn start() -> Server {
    let server = Server::create();
    server.start();
    server
}

fn row_of(fault: Fault, name: &'static str) -> Row {
    let lost = fault != Fault::Kill;
    Row { must_lose: lost, keeps_limit: !lost, ..Row::new(ENGINE, MODE, name) }
}

/// Stricter than a count of exact decisions: none of the decisions beyond the limit may be exact.
fn round_of(window: &Window) -> Round {
    let exact = if window.beyond_exact > 0 { LIMIT + window.beyond_exact } else { 0 };
    let (healthy, healthy_exact) = window.healthy;
    let (admitted, came_back) = (window.admitted, window.came_back);
    Round { limit: LIMIT, admitted, exact, healthy, healthy_exact, came_back, ..Round::default() }
}
