//! Settles what permits leave, in the background.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::step::Job;
use crate::store::StoreError;

/// How many settlements are under way at a time, those that wait to be sent again among them. What comes beyond stays
/// charged until its window ends.
const UNDER_WAY_MAX: u64 = 65_536;

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

/// Does what permits leave to be done, each in a task of its own, on the runtime of who leaves it or else on that of the
/// last call.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    runtime: Mutex<Option<Handle>>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    begun: AtomicU64,
    done: AtomicU64,
    unknown: AtomicU64,
    lost: AtomicU64,
}

/// A settlement that is under way. One that is dropped before it is done is lost: its runtime ended, or it panicked.
struct UnderWay(Option<Arc<Counters>>);

impl Keeper {
    /// Remembers the caller's runtime, for permits that are dropped where there is none.
    pub(super) fn wake(&self) {
        let mut known = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(runtime) = Handle::try_current()
            && known.as_ref().is_none_or(|known| known.id() != runtime.id())
        {
            *known = Some(runtime);
        }
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
        poll_fn(|context| {
            if let Poll::Ready(told) = hears.as_mut().poll(context) {
                return Poll::Ready(told.unwrap_or_else(|_| Err(nobody_left())));
            }
            pauses.as_mut().poll(context).map(|()| Err(StoreError::unavailable("it is sent again meanwhile")))
        })
        .await
    }

    /// Has it done, and waits until it is, however often it has to be tried.
    pub(super) async fn finish(&self, job: Option<Job>) -> Result<(), StoreError> {
        let Some(job) = job else { return Ok(()) };
        let (hears, _) = self.begin(job);
        hears.await.unwrap_or_else(|_| Err(nobody_left()))
    }

    fn begin(&self, job: Job) -> (oneshot::Receiver<Result<(), StoreError>>, Arc<Notify>) {
        let under_way = UnderWay(Some(self.counters.clone()));
        self.counters.begun.fetch_add(1, Relaxed);
        let (pauses, (told, hears)) = (Arc::new(Notify::new()), oneshot::channel());
        let known = || self.runtime.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if self.stats().waiting <= UNDER_WAY_MAX
            && let Some(runtime) = Handle::try_current().ok().or_else(known)
        {
            let work = job(pauses.clone());
            runtime.spawn(async move {
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
