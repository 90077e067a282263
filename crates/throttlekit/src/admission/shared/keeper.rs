//! Settles what permits leave, in the background.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::step::Job;

/// How many settlements wait. What comes beyond stays charged until its window ends.
const QUEUED_MAX: usize = 65_536;
/// How many are under way at a time.
const UNDER_WAY_MAX: usize = 64;

/// What became of settlements since the policy was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettleStats {
    /// Settlements that a store was to be asked for.
    pub begun: u64,
    /// Of them, those that are not done yet.
    pub waiting: u64,
    /// Of them, those of which nobody knows whether they were counted: the store did not answer. What they were to give back
    /// stays charged until its window ends, or it has refilled.
    pub unknown: u64,
    /// Of them, those that nobody was left to do: no runtime, or too many before them. Likewise.
    pub lost: u64,
}

/// The way to the task that settles for all permits of a policy: one, started by the first call.
#[derive(Debug)]
pub(super) struct Keeper {
    jobs: Mutex<mpsc::Sender<Job>>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    begun: AtomicU64,
    done: AtomicU64,
    unknown: AtomicU64,
    lost: AtomicU64,
}

impl Keeper {
    pub(super) fn new() -> Arc<Self> {
        let (nobody_listens, _) = mpsc::channel(1);
        Arc::new(Self { jobs: Mutex::new(nobody_listens), counters: Arc::default() })
    }

    /// Sees to it that somebody listens, if there is a runtime to do so on. One whose runtime has ended is replaced.
    pub(super) fn wake(&self) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.is_closed()
            && let Ok(runtime) = Handle::try_current()
        {
            let (sender, queue) = mpsc::channel(QUEUED_MAX);
            *jobs = sender;
            runtime.spawn(keep(queue, self.counters.clone()));
        }
    }

    /// Has it done in the background.
    pub(super) fn leave(&self, job: Option<Job>) {
        let Some(job) = job else { return };
        self.counters.begun.fetch_add(1, Relaxed);
        self.wake();
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.try_send(job).is_err() {
            self.counters.lost.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn stats(&self) -> SettleStats {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let Counters { begun, done, unknown, lost } = &*self.counters;
        let (done, unknown, lost) = (read(done), read(unknown), read(lost));
        let begun = read(begun);
        SettleStats { begun, waiting: begun.saturating_sub(done + unknown + lost), unknown, lost }
    }
}

/// Runs until nobody is left who could leave anything, and all of it is done.
async fn keep(mut queue: mpsc::Receiver<Job>, counters: Arc<Counters>) {
    let mut under_way = JoinSet::new();
    loop {
        if under_way.len() >= UNDER_WAY_MAX {
            under_way.join_next().await;
        }
        let Some(job) = queue.recv().await else { break };
        let counters = counters.clone();
        under_way.spawn(async move {
            let counter = if job.await.is_ok() { &counters.done } else { &counters.unknown };
            counter.fetch_add(1, Relaxed);
        });
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
}
