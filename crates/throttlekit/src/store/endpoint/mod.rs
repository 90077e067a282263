//! The only connection to an engine: deadline, limit on calls in flight, circuit breaker, counters.

mod prober;
mod stats;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};

use self::prober::probe_until_answered;
use self::stats::Counters;
pub use self::stats::StoreClientStats;
use super::breaker::Breaker;
use super::{Background, StoreError, TaskSlot};
use crate::sync::Mutex;

/// Minimum number of calls in flight before a late one, for it to be late because of them.
const OWN_QUEUE_MIN: u64 = 64;

/// Probes whether an engine responds. Called while the breaker is open; may reconnect or look for another node.
pub type Probe = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>> + Send + Sync>;

/// Options of a [`StoreClient`].
#[derive(Clone, Copy, Debug)]
pub struct StoreClientOptions {
    /// Maximum duration of a call, waiting included.
    pub deadline: Duration,
    /// Maximum number of calls in flight; one more is rejected at once.
    pub in_flight_max: usize,
    /// Number of outages in a row that open the breaker.
    pub opens_after: u32,
    /// Wait between probes while it is open; each wait is between half and one and a half of it.
    pub probe_every: Duration,
}

impl Default for StoreClientOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(100),
            in_flight_max: 10_000,
            opens_after: 5,
            probe_every: Duration::from_millis(100),
        }
    }
}

/// A connection with a circuit breaker to one engine, or to one node of it.
///
/// Calls go through while the breaker is closed. When it opens they are rejected at once, and a background task probes
/// the engine until it responds, so that no caller pays for it. If that task has ended, the next call that is rejected
/// starts another.
#[derive(Clone)]
pub struct StoreClient(Arc<Inner>);

struct Inner {
    options: StoreClientOptions,
    background: Background,
    breaker: Breaker,
    /// Slot of the task that probes while the breaker is open.
    prober: Arc<TaskSlot>,
    slots: Semaphore,
    counters: Counters,
    answers: Arc<AtomicU64>,
    probe: Probe,
    /// Error of calls while the breaker is open, with its cause.
    away: Mutex<StoreError>,
}

impl Inner {
    fn in_flight(&self) -> u64 {
        self.options.in_flight_max.saturating_sub(self.slots.available_permits()) as u64
    }

    fn is_away_since(&self, cause: &StoreError) {
        *self.away.lock() = StoreError::unavailable(format_args!("circuit breaker open: {cause}"));
    }
}

impl StoreClient {
    /// Creates an endpoint that uses `probe` to detect when its engine is back. Calls and probes run on the driver
    /// thread.
    pub fn new(options: StoreClientOptions, probe: Probe) -> Self {
        Self::on(Background::default(), options, probe)
    }

    /// The same, with calls and probes on this background.
    pub fn on(background: Background, options: StoreClientOptions, probe: Probe) -> Self {
        let background = background.with_deadline(options.deadline);
        Self(Arc::new(Inner {
            options,
            background,
            breaker: Breaker::new(options.opens_after),
            prober: Arc::default(),
            slots: Semaphore::new(options.in_flight_max.clamp(1, Semaphore::MAX_PERMITS)),
            counters: Counters::default(),
            answers: Arc::default(),
            probe,
            away: Mutex::new(StoreError::unavailable("circuit breaker open")),
        }))
    }

    /// Makes one call. `work` runs only if the call is not rejected, and no longer than the deadline.
    ///
    /// It runs as a task of its own: a caller that stops waiting, or whose runtime stalls, does not affect what the
    /// call shows about the engine, and delays nobody. Returns after two deadlines even if the task is not driven.
    pub fn call<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, StoreError>> + Send {
        let called = self.call_judged(work, |result| result.as_ref().err().cloned());
        async { called.await? }
    }

    /// The same for work whose result has its own errors: `failure` returns the one that counts as a failure of the
    /// engine. An error of the endpoint itself means that the call was rejected, or had no response within the
    /// deadline.
    pub fn call_judged<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        failure: fn(&T) -> Option<StoreError>,
    ) -> impl Future<Output = Result<T, StoreError>> + Send {
        // Boxed before anything holds it: each of the futures around it would have space for a copy.
        let work = Box::pin(work);
        async move {
            let in_flight = self.enter()?;
            let deadline = self.0.options.deadline;
            let work = async move {
                let result = timeout(deadline, work).await.map_err(|_| in_flight.late());
                match &result {
                    Ok(result) => in_flight.end(failure(result).as_ref()),
                    Err(late) => in_flight.end(Some(late)),
                }
                result
            };
            self.0.background.run(1, work).await?
        }
    }

    /// Makes one call whose engine may let it wait for up to `wait` before it responds: its deadline is as much later.
    ///
    /// `work` is dropped with the caller, so that the engine can end the wait. A call that was dropped shows nothing
    /// about the engine.
    pub async fn call_waiting<T: Send + 'static>(
        &self,
        wait: Duration,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let in_flight = Droppable(Some(self.enter()?));
        let deadline = self.0.options.deadline.saturating_add(wait);
        let work = async move {
            let result = timeout(deadline, work).await;
            let result = result.unwrap_or(Err(StoreError::Deadline(deadline)));
            in_flight.end(result.as_ref().err());
            result
        };
        self.0.background.run_attached(work).await?
    }

    /// Like [`call`](Self::call) for work that borrows, which the caller polls itself, and whose requests are tasks of the engine's own that
    /// count into [`answers`](Self::answers).
    ///
    /// If the caller stops waiting, nobody gets the result. Then the call counts as a failure unless the engine has
    /// responded to anything between its beginning and its deadline.
    pub async fn call_here<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let in_flight = self.enter()?;
        let (deadline, answers, ahead) = (self.0.options.deadline, in_flight.answers, in_flight.ahead);
        let abandoned = Abandoned::watch(in_flight);
        let result = self.0.background.within(deadline, work).await;
        let result = result.unwrap_or_else(|| Err(self.late(answers, ahead)));
        abandoned.end(result.as_ref().err());
        result
    }

    /// Returns the counter of the engine's responses. Code that gets a response that no call waits for adds to it.
    pub fn answers(&self) -> Arc<AtomicU64> {
        self.0.answers.clone()
    }

    /// Takes a slot among the calls in flight, or returns why there is none.
    fn enter(&self) -> Result<InFlight, StoreError> {
        let inner = &*self.0;
        if inner.breaker.is_open() {
            self.ensure_prober();
            inner.counters.refused_open.fetch_add(1, Relaxed);
            return Err(inner.away.lock().clone());
        }
        let Ok(slot) = inner.slots.try_acquire() else {
            inner.counters.refused_full.fetch_add(1, Relaxed);
            return Err(StoreError::Overloaded);
        };
        slot.forget();
        inner.counters.calls.fetch_add(1, Relaxed);
        let ahead = inner.in_flight().saturating_sub(1);
        Ok(InFlight { line: self.clone(), answers: inner.answers.load(Relaxed), ahead, noted: false })
    }

    /// Returns why a call is late that began after `answers` responses, behind `ahead` others. An engine that responds
    /// is not unavailable: if the calls before it were many, it is late because of them.
    fn late(&self, answers: u64, ahead: u64) -> StoreError {
        let is_silent = self.0.answers.load(Relaxed) == answers;
        if is_silent || ahead < OWN_QUEUE_MIN {
            return StoreError::Deadline(self.0.options.deadline);
        }
        StoreError::Overloaded
    }

    /// Returns the background on which its calls and probes run.
    pub fn background(&self) -> &Background {
        &self.0.background
    }

    /// Returns the statistics so far.
    pub fn stats(&self) -> StoreClientStats {
        let Inner { breaker, counters, .. } = &*self.0;
        StoreClientStats { in_flight: self.0.in_flight(), open: breaker.is_open(), ..counters.read() }
    }

    /// Checks whether the circuit breaker is open: calls are rejected until a probe succeeds.
    pub fn is_open(&self) -> bool {
        self.0.breaker.is_open()
    }

    /// Opens the breaker at once: the engine is known to be unavailable, as at startup.
    pub fn open(&self) {
        if self.0.breaker.open() {
            self.opened();
        }
    }

    fn note(&self, error: Option<&StoreError>) {
        let Inner { breaker, counters, answers, .. } = &*self.0;
        match error {
            Some(StoreError::Deadline(_) | StoreError::Overloaded) => {
                counters.timed_out.fetch_add(1, Relaxed)
            }
            Some(_) => counters.failed.fetch_add(1, Relaxed),
            None => 0,
        };
        match error {
            Some(outage) if outage.is_outage() => {
                if breaker.failed() {
                    self.0.is_away_since(outage);
                    self.opened();
                }
            }
            // It shows nothing about the engine.
            Some(StoreError::Overloaded) => {}
            _ => {
                answers.fetch_add(1, Relaxed);
                breaker.answered();
            }
        }
    }

    fn opened(&self) {
        self.0.counters.opened.fetch_add(1, Relaxed);
        self.ensure_prober();
    }

    /// Starts the task that probes, unless it runs.
    fn ensure_prober(&self) {
        let Inner { prober, background, .. } = &*self.0;
        prober.ensure(background, || probe_until_answered(Arc::downgrade(&self.0)));
    }
}

/// A call in flight. If dropped before its end is recorded, it panicked or its runtime ended: then it got no response.
struct InFlight {
    line: StoreClient,
    /// Number of responses when it began.
    answers: u64,
    /// Number of calls in flight when it began.
    ahead: u64,
    noted: bool,
}

impl InFlight {
    fn end(mut self, error: Option<&StoreError>) {
        self.noted = true;
        self.line.note(error);
    }

    fn late(&self) -> StoreError {
        self.line.late(self.answers, self.ahead)
    }

    /// Ends it as a failure, or as a call without a known result.
    fn judge(mut self, failure: Option<&StoreError>) {
        self.noted = true;
        failure.into_iter().for_each(|late| self.line.note(Some(late)));
    }
}

/// A call that ends with its caller. If dropped before its end, nothing is known about its result.
struct Droppable(Option<InFlight>);

impl Droppable {
    fn end(mut self, error: Option<&StoreError>) {
        self.0.take().into_iter().for_each(|in_flight| in_flight.end(error));
    }
}

impl Drop for Droppable {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|in_flight| in_flight.judge(None));
    }
}

/// A call that is polled by its caller. If dropped before its end, it is judged at its deadline by the engine's
/// responses to others.
struct Abandoned {
    in_flight: Option<InFlight>,
    began: Instant,
}

impl Abandoned {
    fn watch(in_flight: InFlight) -> Self {
        let began = in_flight.line.0.background.enter(Instant::now);
        Self { in_flight: Some(in_flight), began }
    }

    fn end(mut self, error: Option<&StoreError>) {
        self.in_flight.take().into_iter().for_each(|in_flight| in_flight.end(error));
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        let Some(in_flight) = self.in_flight.take() else { return };
        let line = in_flight.line.clone();
        let until = self.began + line.0.options.deadline;
        line.0.background.spawn(async move {
            sleep_until(until).await;
            let inner = &in_flight.line.0;
            let silent = inner.answers.load(Relaxed) == in_flight.answers;
            let late = StoreError::Deadline(inner.options.deadline);
            in_flight.judge(silent.then_some(&late));
        });
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.line.0.slots.add_permits(1);
        if !self.noted {
            self.line.note(Some(&StoreError::unavailable("the call ended without a response")));
        }
    }
}

impl std::fmt::Debug for StoreClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreClient").field("options", &self.0.options).field("stats", &self.stats()).finish()
    }
}
