//! Runs scenarios against a subject, many at a time, and reports the first failure in its shortest form.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use throttlekit::clock::ManualClock;
use throttlekit::store::StoreError;
use tokio::task::JoinSet;

use crate::invariants::Violation;
use crate::stores::PARALLEL_SCENARIOS;

/// Counts of comparisons, which can be added up.
pub trait Tally: Default + Send + 'static {
    /// Adds both.
    fn plus(self, other: Self) -> Self;
}

/// A scenario that can be run against a subject.
pub trait Played<S>: Debug + Send + Sync + 'static {
    /// The report of a run.
    type Report: Tally;

    /// Generates the scenario of this seed.
    fn of(seed: u64) -> Self;

    /// Returns the same with one operation less, each in turn.
    fn shorter(&self) -> Vec<Self>
    where
        Self: Sized;

    /// Runs it. Returns the first difference as an error.
    fn play(
        &self,
        subject: &S,
        clock: &ManualClock,
    ) -> impl Future<Output = Result<Self::Report, String>> + Send;
}

/// Returns copies of the operations, each without one of them: smaller scenarios, to find the least that fails.
pub(crate) fn without_each<T: Clone>(operations: &[T]) -> impl Iterator<Item = Vec<T>> {
    (0..operations.len()).map(|left_out| {
        let mut others = operations.to_vec();
        others.remove(left_out);
        others
    })
}

/// Runs the scenarios of these seeds against what `make` creates. Stops at the first violation.
pub async fn examine<W, S, M, F>(make: M, seeds: Range<u64>) -> Result<W::Report, Violation>
where
    W: Played<S>,
    S: Send + Sync + 'static,
    M: Fn(ManualClock) -> F + Send + Sync + 'static,
    F: Future<Output = Result<S, StoreError>> + Send + 'static,
{
    examine_each::<W, S, M, F>(make, seeds.collect()).await
}

/// The same for these seeds, in their order.
pub async fn examine_each<W, S, M, F>(make: M, seeds: Vec<u64>) -> Result<W::Report, Violation>
where
    W: Played<S>,
    S: Send + Sync + 'static,
    M: Fn(ManualClock) -> F + Send + Sync + 'static,
    F: Future<Output = Result<S, StoreError>> + Send + 'static,
{
    let (make, seeds, next) = (Arc::new(make), Arc::new(seeds), Arc::new(AtomicUsize::new(0)));
    let mut running = JoinSet::new();
    for _ in 0..seeds.len().min(PARALLEL_SCENARIOS as usize) {
        running.spawn(worker::<W, S, M, F>(make.clone(), seeds.clone(), next.clone()));
    }
    let (mut report, mut first) = (W::Report::default(), None::<Violation>);
    while let Some(ended) = running.join_next().await {
        match ended.expect("a worker does not panic") {
            Ok(played) => report = report.plus(played),
            Err(violation) if first.as_ref().is_none_or(|v| violation.seed < v.seed) => {
                first = Some(violation);
            }
            Err(_) => {}
        }
    }
    first.map_or(Ok(report), Err)
}

async fn worker<W, S, M, F>(
    make: Arc<M>,
    seeds: Arc<Vec<u64>>,
    next: Arc<AtomicUsize>,
) -> Result<W::Report, Violation>
where
    W: Played<S>,
    S: Sync,
    M: Fn(ManualClock) -> F + Send + Sync,
    F: Future<Output = Result<S, StoreError>> + Send,
{
    let clock = ManualClock::default();
    let failed = |seed, counterexample| {
        next.store(seeds.len(), Relaxed);
        Violation { seed, counterexample }
    };
    let subject =
        make(clock.clone()).await.map_err(|error| failed(0, format!("nothing to play on: {error}")))?;
    let mut report = W::Report::default();
    loop {
        let Some(&seed) = seeds.get(next.fetch_add(1, Relaxed)) else { return Ok(report) };
        let mut scenario = W::of(seed);
        match scenario.play(&subject, &clock).await {
            Ok(played) => report = report.plus(played),
            Err(mut counterexample) => {
                while let Some((shorter, told)) = fails_shorter(&subject, &clock, &scenario).await {
                    (scenario, counterexample) = (shorter, told);
                }
                return Err(failed(seed, format!("{counterexample}\n{scenario:#?}")));
            }
        }
    }
}

async fn fails_shorter<W: Played<S>, S>(
    subject: &S,
    clock: &ManualClock,
    scenario: &W,
) -> Option<(W, String)> {
    for shorter in scenario.shorter() {
        if let Err(counterexample) = shorter.play(subject, clock).await {
            return Some((shorter, counterexample));
        }
    }
    None
}
