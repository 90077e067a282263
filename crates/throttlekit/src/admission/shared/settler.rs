//! The task that settles what permits leave.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::step::Job;
use crate::store::{Background, StoreError};

/// How many settlements are under way at a time, those that wait to be sent again among them. What comes beyond stays
/// charged until its window ends.
const UNDER_WAY_MAX: u64 = 65_536;
/// For how many deadlines of its store a settlement is waited for, and how long more for the pauses between its tries.
const FINISH_DEADLINES: u32 = 16;
const FINISH_PAUSES: Duration = Duration::from_secs(10);

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
    /// Of them, those that nobody was left to do: they panicked, or there were too many before them. Likewise.
    pub lost: u64,
}

/// Does what permits leave to be done, each in a background task of its own.
#[derive(Debug, Default)]
pub(super) struct Settler {
    /// That of the policy's first store; the driver thread, where none has said.
    background: OnceLock<Background>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    begun: AtomicU64,
    done: AtomicU64,
    unknown: AtomicU64,
    lost: AtomicU64,
}

/// A settlement that is under way. One that is dropped before it is done is lost: it panicked, or its runtime ended.
struct UnderWay(Option<Arc<Counters>>);

impl Settler {
    /// Settles where a store has its background work, unless another store came first.
    pub(super) fn run_on(&self, background: Background) {
        let _ = self.background.set(background);
    }

    pub(super) fn background(&self) -> Background {
        self.background.get().cloned().unwrap_or_default()
    }

    /// Has it done in the background.
    pub(super) fn leave(&self, job: Option<Job>) {
        drop(job.map(|job| self.begin(job)));
    }

    /// Has it done, and waits for that, but not longer than one try takes: what has to be tried again is, in the background.
    pub(super) async fn see_to(&self, job: Option<Job>) -> Result<(), StoreError> {
        let Some(job) = job else { return Ok(()) };
        let (mut hears, pauses) = self.begin(job);
        let (mut pauses, mut hears) = (pin!(pauses.notified()), pin!(&mut hears));
        let one_try = poll_fn(|context| {
            if let Poll::Ready(told) = hears.as_mut().poll(context) {
                return Poll::Ready(told.unwrap_or_else(|_| Err(nobody_left())));
            }
            pauses.as_mut().poll(context).map(|()| Err(StoreError::unavailable("it is sent again meanwhile")))
        });
        // A settlement and a return, one after the other.
        self.background().wait(2, one_try).await?
    }

    /// Has it done, and waits until it is, however often it has to be tried.
    pub(super) async fn finish(&self, job: Option<Job>) -> Result<(), StoreError> {
        let Some(job) = job else { return Ok(()) };
        let (hears, _) = self.begin(job);
        let (background, pauses) = (self.background(), FINISH_PAUSES);
        let deadline = background.deadline();
        let heard = background.within(pauses + deadline.saturating_mul(FINISH_DEADLINES), hears).await;
        heard.map_or(Err(StoreError::Deadline(deadline)), |told| told.unwrap_or_else(|_| Err(nobody_left())))
    }

    fn begin(&self, job: Job) -> (oneshot::Receiver<Result<(), StoreError>>, Arc<Notify>) {
        let under_way = UnderWay(Some(self.counters.clone()));
        self.counters.begun.fetch_add(1, Relaxed);
        let (pauses, (told, hears)) = (Arc::new(Notify::new()), oneshot::channel());
        if self.stats().waiting <= UNDER_WAY_MAX {
            let work = job(pauses.clone());
            self.background().spawn(async move {
                let done = work.await;
                under_way.end(done.is_ok());
                // Perhaps nobody waits.
                let _ = told.send(done);
            });
        }
        (hears, pauses)
    }

    pub(super) fn stats(&self) -> SettleStats {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let Counters { begun, done, unknown, lost } = &*self.counters;
        let (done, unknown, lost) = (read(done), read(unknown), read(lost));
        let begun = read(begun);
        SettleStats { begun, waiting: begun.saturating_sub(done + unknown + lost), unknown, lost }
    }
}

impl UnderWay {
    fn end(mut self, done: bool) {
        if let Some(counters) = self.0.take() {
            let counter = if done { &counters.done } else { &counters.unknown };
            counter.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(counters) = self.0.take() {
            counters.lost.fetch_add(1, Relaxed);
        }
    }
}

fn nobody_left() -> StoreError {
    StoreError::unavailable("nobody is left to settle it")
}
