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

/// Maximum number of settlements in progress, including those that wait for a retry. Charges beyond it stay until their
/// window ends.
const UNDER_WAY_MAX: u64 = 65_536;
/// Store deadlines to wait for a settlement, and the additional time for the pauses between its attempts.
const FINISH_DEADLINES: u32 = 16;
const FINISH_PAUSES: Duration = Duration::from_secs(10);

/// Counters of a [`SharedPolicy`](super::SharedPolicy) since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedPolicyStats {
    /// Settlements to send to a store.
    pub settlements: u64,
    /// Of these, those in progress.
    pub settlements_waiting: u64,
    /// Of these, those with an unknown outcome: the store did not respond. The units to return stay charged until their
    /// window ends, or it has refilled.
    pub settlements_unknown: u64,
    /// Of these, those that were never executed: they panicked, or too many were queued. Their units stay charged
    /// likewise.
    pub settlements_lost: u64,
}

/// Runs the settlements of permits, each in a background task of its own.
#[derive(Debug, Default)]
pub(super) struct Settler {
    /// Background of the policy's first store; the driver thread if no store has set it.
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

/// A settlement in progress. If dropped before it is done, it is lost: it panicked, or its runtime ended.
struct UnderWay(Option<Arc<Counters>>);

impl Settler {
    /// Runs settlements on the background of a store, unless another store came first.
    pub(super) fn run_on(&self, background: Background) {
        let _ = self.background.set(background);
    }

    pub(super) fn background(&self) -> Background {
        self.background.get().cloned().unwrap_or_default()
    }

    /// Runs a job in the background.
    pub(super) fn leave(&self, job: Option<Job>) {
        drop(job.map(|job| self.begin(job)));
    }

    /// Runs a job and waits for it, but no longer than one attempt; retries happen in the background.
    pub(super) async fn see_to(&self, job: Option<Job>) -> Result<(), StoreError> {
        let Some(job) = job else { return Ok(()) };
        let (mut hears, pauses) = self.begin(job);
        let (mut pauses, mut hears) = (pin!(pauses.notified()), pin!(&mut hears));
        let one_try = poll_fn(|context| {
            if let Poll::Ready(told) = hears.as_mut().poll(context) {
                return Poll::Ready(told.unwrap_or_else(|_| Err(nobody_left())));
            }
            pauses
                .as_mut()
                .poll(context)
                .map(|()| Err(StoreError::unavailable("the settlement is being retried")))
        });
        // A settlement and a return, in sequence.
        self.background().wait(2, one_try).await?
    }

    /// Runs a job and waits until it is done, retries included.
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
        if self.stats().settlements_waiting <= UNDER_WAY_MAX {
            let work = job(pauses.clone());
            self.background().spawn(async move {
                let done = work.await;
                under_way.end(done.is_ok());
                // The receiver may be gone.
                let _ = told.send(done);
            });
        }
        (hears, pauses)
    }

    pub(super) fn stats(&self) -> SharedPolicyStats {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let Counters { begun, done, unknown, lost } = &*self.counters;
        let (done, unknown, lost) = (read(done), read(unknown), read(lost));
        let begun = read(begun);
        SharedPolicyStats {
            settlements: begun,
            settlements_waiting: begun.saturating_sub(done + unknown + lost),
            settlements_unknown: unknown,
            settlements_lost: lost,
        }
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
    StoreError::unavailable("the background task that settles has ended")
}
