//! Many scenarios at once, and the shortest counterexample of one that fails.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use throttlekit::clock::ManualClock;
use throttlekit::store::{Store, StoreError};
use tokio::task::JoinSet;

use super::fixture::Fault;
use super::play::play;
use super::report::StoreReport;
use super::scenario::StoreScenario;
use super::seeded::{SeededStore, StoreBug};
use crate::invariants::Violation;

/// Number of random scenarios in a store's own test.
pub const STORE_SCENARIOS: u64 = 2_000;
/// Number of concurrent scenarios, so that an engine is kept busy. Each has a clock of its own.
pub const PARALLEL_SCENARIOS: u64 = 16;
/// Number of scenarios after which a task creates a new store: a store may bound how many different limits it keeps.
const SCENARIOS_PER_STORE: u64 = 64;

/// Runs the scenarios of these seeds against a store: guarantee `same-everywhere`. Stops at the first violation.
///
/// `make` creates a store that reads the given clock; it is called more than once, and all that it creates may share
/// one engine, since each scenario keeps its keys under a name of its own. Only the scenarios advance the clock: state
/// that an engine expires by its own time must last longer than a scenario takes.
pub async fn examine_store<S, M, F>(make: M, seeds: Range<u64>) -> Result<StoreReport, Violation>
where
    S: Store,
    M: Fn(ManualClock) -> F + Send + Sync + 'static,
    F: Future<Output = Result<S, StoreError>> + Send + 'static,
{
    let shared = Arc::new(Shared { make, next: AtomicU64::new(seeds.start), end: seeds.end });
    let workers = PARALLEL_SCENARIOS.min(seeds.end.saturating_sub(seeds.start));
    let mut running = JoinSet::new();
    for _ in 0..workers {
        running.spawn(worker(shared.clone()));
    }
    let (mut report, mut first) = (StoreReport::default(), None::<Violation>);
    while let Some(ended) = running.join_next().await {
        match ended.expect("a worker does not panic") {
            Ok(played) => report.add(played),
            Err(violation) if first.as_ref().is_none_or(|v| violation.seed < v.seed) => {
                first = Some(violation);
            }
            Err(_) => {}
        }
    }
    first.map_or(Ok(report), Err)
}

/// Returns the number of scenarios until the check finds a seeded bug, if `scenarios_max` are enough.
pub async fn find_store_bug(bug: StoreBug, scenarios_max: u64) -> Option<u64> {
    let make = move |clock| async move { Ok(SeededStore::new(clock, bug)) };
    examine_store(make, 0..scenarios_max).await.err().map(|violation| violation.seed + 1)
}

struct Shared<M> {
    make: M,
    next: AtomicU64,
    end: u64,
}

/// Runs one scenario after the other, until none is left or one fails.
async fn worker<S, M, F>(shared: Arc<Shared<M>>) -> Result<StoreReport, Violation>
where
    S: Store,
    M: Fn(ManualClock) -> F + Send + Sync,
    F: Future<Output = Result<S, StoreError>> + Send,
{
    let mut report = StoreReport::default();
    let mut table = None;
    loop {
        let seed = shared.next.fetch_add(1, Relaxed);
        if seed >= shared.end {
            return Ok(report);
        }
        let scenario = StoreScenario::roll(seed);
        let failed = |counterexample: String| {
            shared.next.store(shared.end, Relaxed);
            Violation { seed, counterexample }
        };
        let (laid, played) = match table.take() {
            Some((laid, played)) if played < SCENARIOS_PER_STORE => (laid, played),
            _ => {
                let made = Table::lay(&shared.make).await;
                (made.map_err(|error| failed(format!("no store to play it on: {error}")))?, 0)
            }
        };
        match laid.play(&scenario).await {
            Ok(played) => report.add(played),
            Err(fault) => return Err(failed(laid.counterexample(scenario, fault).await)),
        }
        table = Some((laid, played + 1));
    }
}

/// A store with its clock.
struct Table<S> {
    store: Arc<S>,
    clock: ManualClock,
}

impl<S: Store> Table<S> {
    async fn lay<M, F>(make: &M) -> Result<Self, StoreError>
    where
        M: Fn(ManualClock) -> F,
        F: Future<Output = Result<S, StoreError>>,
    {
        let clock = ManualClock::default();
        Ok(Self { store: Arc::new(make(clock.clone()).await?), clock })
    }

    async fn play(&self, scenario: &StoreScenario) -> Result<StoreReport, (usize, Fault)> {
        let notes = play(scenario, policy_name(scenario.seed), &self.store, &self.clock).await?;
        Ok(StoreReport::of_scenario(notes))
    }

    /// Shrinks the scenario as long as it fails, and reports the smallest one. An unavailable store ends this.
    async fn counterexample(&self, mut scenario: StoreScenario, mut fault: (usize, Fault)) -> String {
        while !matches!(&fault.1, Fault::Error(error) if error.is_outage()) {
            let Some(smaller) = self.fails_smaller(&scenario).await else { break };
            (scenario, fault) = smaller;
        }
        tell(&scenario, &fault)
    }

    async fn fails_smaller(&self, scenario: &StoreScenario) -> Option<(StoreScenario, (usize, Fault))> {
        for smaller in scenario.smaller() {
            if let Err(fault) = self.play(&smaller).await {
                return Some((smaller, fault));
            }
        }
        None
    }
}

fn tell(scenario: &StoreScenario, (index, fault): &(usize, Fault)) -> String {
    let at = if *index < scenario.operations.len() {
        format!("at operation {index}")
    } else {
        "in the end".into()
    };
    match fault {
        Fault::Differs { want, got } => format!("{at}\n  want {want}\n  got  {got}\n{scenario}"),
        Fault::Error(error) => format!("{at}: {error}\n{scenario}"),
    }
}

/// Returns a policy name that no other scenario, process or attempt has: scenarios do not conflict in an engine, and
/// nothing is flushed.
pub fn policy_name(seed: u64) -> String {
    static ATTEMPTS: AtomicU64 = AtomicU64::new(0);
    let attempt = ATTEMPTS.fetch_add(1, Relaxed);
    let chance = RandomState::new().hash_one((std::process::id(), attempt));
    format!("conf-{seed}-{attempt}-{chance:016x}")
}
