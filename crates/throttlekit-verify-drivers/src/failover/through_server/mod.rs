//! Failovers behind a running server: `throttlekit serve` over Sentinels, over a cluster and through PgBouncer, in each
//! failover mode. Every decision has a label, and the label must be true in every window of the store.
//!
//! Time is real here: windows are a few seconds long, and each decision names the end of its window. So decisions are
//! counted by key and window, whatever the server did in between.

mod cluster;
mod engine;
mod load;
mod pooler;
mod sentinel;
mod windows;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use throttlekit::clock::{Clock, WallClock};
use throttlekit_conformance::bugs;
use throttlekit_conformance::bugs::Found;
use tokio::time::sleep;

use crate::label_row::{Round, Row, print_head};
use crate::runner::{Run, beside_each_other, block_on, names};
use crate::serving::{Serving, policy_file, program};
pub(super) use engine::Kind;
use engine::{Engine, Fault};
use load::{Client, LIMIT, Load, WINDOW};

/// Rounds in which a seeded bug is searched for; the search stops at the first that finds it.
const ROUNDS_SEEDED: u64 = 12;
const PROGRESS_EVERY: u64 = 10;
/// The most times that a round is repeated because the engine changed its primary of its own.
const REPEATS_MAX: usize = 3;
/// The most units of each key that a replica has when it is cut off; it misses those that follow.
const KEPT_MAX: u64 = LIMIT / 3;
/// The fewest units that each key got when the fault begins: the round exceeds the limit if they are forgotten.
const SPENT_MIN: u64 = LIMIT * 2 / 3;
/// The time limit of each: a mode may admit nothing while a replica is cut off.
const SPEND_MAX: Duration = Duration::from_millis(600);
/// The end of a window on the store, and the arrival of its last decisions.
const SETTLED: Duration = Duration::from_millis(300);
/// The time limit of the label's recovery.
const BACK_MAX: Duration = Duration::from_secs(60);
const DEADLINE_MS: &str = "900";

/// A failover mode of the server, and its guarantee.
#[derive(Clone, Copy)]
struct Mode {
    name: &'static str,
    /// The value of `--store-failover`; empty where there are no modes.
    option: &'static str,
    /// Returns `true` if the limit itself holds under this fault.
    keeps_limit: fn(Fault) -> bool,
}

const ASYNC: Mode = Mode { name: "async", option: "async", keeps_limit: |_| false };
const SAMPLED: Mode = Mode { name: "sampled", option: "async:20", keeps_limit: |_| false };
const WAIT: Mode = Mode { name: "wait", option: "wait:1", keeps_limit: |fault| fault != Fault::Restart };
/// Two seconds: `min-replicas-max-lag 1` and one more.
const FENCE: Mode = Mode { name: "fence", option: "fence:2", keeps_limit: |_| true };
/// PostgreSQL flushes each commit, so a crash loses nothing; a standby may be behind.
const FLUSHED: Mode = Mode { name: "flushed", option: "", keeps_limit: |fault| fault == Fault::Restart };

const HONEST: [(Kind, Mode); 9] = [
    (Kind::Sentinel, ASYNC),
    (Kind::Sentinel, SAMPLED),
    (Kind::Sentinel, WAIT),
    (Kind::Sentinel, FENCE),
    (Kind::Cluster, ASYNC),
    (Kind::Cluster, SAMPLED),
    (Kind::Cluster, WAIT),
    (Kind::Cluster, FENCE),
    (Kind::Pooler, FLUSHED),
];

/// The modes of `--small`: one that keeps the limit, and two that label.
const HONEST_SMALL: [(Kind, Mode); 2] = [(Kind::Sentinel, ASYNC), (Kind::Sentinel, FENCE)];

bugs! {
    /// Servers that guarantee less than they say, and decisions that are labelled wrongly.
    pub(crate) enum Bug {
        AsyncExact: "In mode async every decision is labelled exact.",
        NotFenced: "The mode is called fence, and the server runs async.",
        NotAwaited: "The mode is called wait, and the server runs async.",
        NothingLost: "The number of a bounded decision is 0.",
        AlwaysBounded: "No decision is labelled exact.",
        PoolerExact: "Behind a pooler every decision is labelled exact.",
    }
}

impl Bug {
    /// Returns the engine, the mode of the server, the guarantee that it claims, and a fault that exposes the bug.
    fn shown_by(self) -> (Kind, Mode, Mode, Fault) {
        match self {
            Self::AsyncExact | Self::AlwaysBounded => (Kind::Sentinel, ASYNC, ASYNC, Fault::Restart),
            Self::NotFenced => (Kind::Sentinel, ASYNC, FENCE, Fault::Restart),
            Self::NotAwaited => (Kind::Sentinel, ASYNC, WAIT, Fault::Stall),
            Self::NothingLost => (Kind::Sentinel, SAMPLED, SAMPLED, Fault::Stall),
            Self::PoolerExact => (Kind::Pooler, FLUSHED, FLUSHED, Fault::Stall),
        }
    }

    /// The bugs that `--small` looks for.
    fn is_small(self) -> bool {
        matches!(self, Self::AsyncExact | Self::NotFenced)
    }
}

/// Returns the names of the seeded bugs.
pub(crate) fn seeded() -> Vec<&'static str> {
    names(Bug::ALL)
}

/// Runs every engine in every mode, then every seeded bug. Rounds mostly wait, so all engines run at once.
pub(super) async fn verify(rounds: u64, small: bool, only: Option<&str>, run: &mut Run) -> Result<Value> {
    let program = program()?;
    let policies = policy_file("failover", &load::policies())?;
    let is_played = |kind: Kind| only.is_none_or(|only| only == kind.name());
    let honest = if small && only.is_none() { &HONEST_SMALL[..] } else { &HONEST[..] };
    let honest = honest.iter().filter(|(kind, _)| is_played(*kind));
    let bugs =
        Bug::ALL.iter().copied().filter(|bug| (!small || bug.is_small()) && is_played(bug.shown_by().0));
    print_head();
    let mut stands = Vec::new();
    // One after the other, or two would find the same port free.
    for &(kind, mode) in honest {
        stands.push(Stand::start(kind, mode, &program, &policies).await?);
    }
    let plays = stands.into_iter().map(|stand| move || block_on(stand.play_all(rounds)).inspect_err(tell));
    let mut rows = beside_each_other(plays).await?.concat();
    let mut hunts = Vec::new();
    for bug in bugs {
        let (kind, mode, claimed, fault) = bug.shown_by();
        let stand = Stand::start(kind, mode, &program, &policies).await?;
        hunts.push(move || block_on(stand.search(bug, claimed, fault)).inspect_err(tell));
    }
    rows.extend(beside_each_other(hunts).await?);
    std::fs::remove_file(policies)?;
    Ok(outcome(&rows, rounds, run))
}

/// Prints an error at once: the other engines run on until their end.
fn tell(error: &anyhow::Error) {
    eprintln!("{error:#}");
}

fn outcome(rows: &[Row], rounds: u64, run: &mut Run) -> Value {
    let honest = || rows.iter().filter(|row| row.seeded.is_none());
    run.violated(honest().filter_map(Row::problem));
    let mut seeded = Found::default();
    rows.iter()
        .filter_map(|row| Some((row.seeded?, row.is_found())))
        .for_each(|(bug, found)| seeded.note(bug, found));
    run.seeded(seeded);
    json!({
        "rounds_each": rounds,
        "rounds": honest().map(|row| row.rounds).sum::<u64>(),
        "exact_beyond_limit": honest().map(|row| row.exact_beyond).sum::<u64>(),
        "understated": honest().map(|row| row.understated).sum::<u64>(),
        "rounds_over_limit": honest().map(|row| row.over).sum::<u64>(),
        "disturbed": honest().map(|row| row.disturbed).sum::<u64>(),
        "repeated": honest().map(|row| row.repeated).sum::<u64>(),
        "fence_over_limit": honest().filter(|row| row.mode == FENCE.name).map(|row| row.over).sum::<u64>(),
        "rows": rows.iter().map(Row::figure).collect::<Vec<_>>(),
    })
}

/// An engine, and a server over it.
struct Stand {
    engine: Engine,
    mode: Mode,
    serving: Serving,
    rounds: u64,
}

impl Stand {
    async fn start(kind: Kind, mode: Mode, program: &Path, policies: &Path) -> Result<Self> {
        let engine = Engine::start(kind, mode.option.starts_with("fence")).await?;
        let mut args: Vec<String> =
            ["--listen", "127.0.0.1:0", "--http", "off", "--metrics", "off"].map(Into::into).into();
        args.extend(["--store-deadline-ms", DEADLINE_MS].map(Into::into));
        args.extend(engine.args());
        if !mode.option.is_empty() {
            args.extend(["--store-failover", mode.option].map(Into::into));
        }
        let serving = Serving::start(program, policies, &args)?;
        Ok(Self { engine, mode, serving, rounds: 0 })
    }

    /// Runs the faults of the engine in turns.
    async fn play_all(mut self, rounds: u64) -> Result<Vec<Row>> {
        let (client, faults) = (Client::from(self.serving.client()?), self.engine.faults());
        let mut rows: Vec<Row> = faults.iter().map(|&fault| self.row(self.mode, fault)).collect();
        for number in 0..rounds {
            let which = (number % faults.len() as u64) as usize;
            let played = self.play_healthy(&client, faults[which], &mut rows[which]).await;
            played.with_context(|| format!("{} {} round {number}", self.engine.name(), self.mode.name))?;
            if (number + 1).is_multiple_of(PROGRESS_EVERY) {
                eprintln!("{} {}: {} of {rounds}", self.engine.name(), self.mode.name, number + 1);
            }
        }
        rows.iter().for_each(Row::print);
        Ok(rows)
    }

    /// Plays a round until one is not disturbed, a few times.
    async fn play_healthy(&mut self, client: &Client, fault: Fault, row: &mut Row) -> Result<()> {
        for _ in 0..REPEATS_MAX {
            let round = self.play(client, fault, None).await?;
            if !round.disturbed {
                row.add(round);
                return Ok(());
            }
            row.add_repeated(round);
        }
        row.add(self.play(client, fault, None).await?);
        Ok(())
    }

    /// Runs rounds until one exposes the bug.
    async fn search(mut self, bug: Bug, claimed: Mode, fault: Fault) -> Result<Row> {
        let client = Client::from(self.serving.client()?);
        let mut row = Row { seeded: Some(bug.name()), ..self.row(claimed, fault) };
        while !row.is_found() && row.rounds < ROUNDS_SEEDED {
            row.add(self.play(&client, fault, Some(bug)).await.with_context(|| bug.name())?);
        }
        row.print();
        Ok(row)
    }

    fn row(&self, mode: Mode, fault: Fault) -> Row {
        let keeps_limit = (mode.keeps_limit)(fault);
        let mut row = Row::new(self.engine.name(), mode.name, fault.name());
        (row.keeps_limit, row.must_lose) = (keeps_limit, !keeps_limit && fault.loses());
        row
    }

    /// Runs one round: callers spend a window, the primary fails, callers go on until the window has ended.
    async fn play(&mut self, client: &Client, fault: Fault, bug: Option<Bug>) -> Result<Round> {
        self.rounds += 1;
        self.engine.prepare(fault).await?;
        let failovers = self.engine.failovers().await?;
        let came_back = client.is_exact(BACK_MAX).await;
        let ends = client.next_window().await?;
        let dice = self.rounds.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let load = Load::start(client, bug);
        if fault == Fault::Stall {
            load.until_got(1 + dice % KEPT_MAX, SPEND_MAX).await;
            self.engine.cut_off().await?;
        }
        load.until_got(SPENT_MIN + dice % (LIMIT - SPENT_MIN), SPEND_MAX).await;
        load.struck();
        // Sentinels that get no processor time for half a second replace a primary that lives. Its charges since the last
        // sample may be lost, so labels are `bounded` until the window has ended, and have to be.
        let disturbed = self.engine.failovers().await? != failovers;
        self.engine.strike(fault).await?;
        sleep(ends.since(WallClock.now()) + SETTLED).await;
        let counts = load.finish().await;
        Ok(Round { came_back, disturbed, ..counts.round(LIMIT) })
    }
}

const _: () =
    assert!(WINDOW.as_secs() >= 4, "a failover takes a second or two, and must end within a window");
