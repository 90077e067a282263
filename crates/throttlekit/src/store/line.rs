//! The one way to an engine: deadline, bound on calls in flight, breaker, counters.

use std::future::{Future, pending};
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::StoreError;
use super::breaker::Breaker;

/// Asks an engine whether it answers. Called while the breaker is open; may reconnect or look for another node.
pub type Probe = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>> + Send + Sync>;

/// How long a probe may take: it makes a connection, perhaps far away and with TLS, whatever the deadline of calls.
const PROBE_MAX: Duration = Duration::from_secs(2);
/// How many probes may be under way. One that hears nothing must not keep the next from finding an engine that is back.
const PROBES_MAX: usize = 16;

/// What a [`Line`] allows.
#[derive(Clone, Copy, Debug)]
pub struct LineOptions {
    /// How long a call may take, waiting included.
    pub deadline: Duration,
    /// How many calls may be under way; one more is refused at once.
    pub in_flight_max: usize,
    /// How many outages in a row open the breaker.
    pub opens_after: u32,
    /// How long to wait between probes while it is open; each wait is between half and one and a half of it.
    pub probe_every: Duration,
}

impl Default for LineOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(100),
            in_flight_max: 10_000,
            opens_after: 5,
            probe_every: Duration::from_millis(100),
        }
    }
}

/// The way to one engine, or to one node of it.
///
/// Calls go through while the breaker is closed. When it opens they are refused at once, and a task of the line's
/// own probes the engine until it answers, so that no caller pays for finding out.
#[derive(Clone)]
pub struct Line(Arc<Inner>);

struct Inner {
    options: LineOptions,
    breaker: Breaker,
    slots: Semaphore,
    counters: Counters,
    probe: Probe,
    /// What calls are told while the breaker is open: why it is.
    away: Mutex<StoreError>,
}

impl Inner {
    fn away(&self) -> MutexGuard<'_, StoreError> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_away_since(&self, cause: &StoreError) {
        *self.away() = StoreError::unavailable(format_args!("it is being probed, since {cause}"));
    }
}

#[derive(Default)]
struct Counters {
    calls: AtomicU64,
    failed: AtomicU64,
    timed_out: AtomicU64,
    refused_open: AtomicU64,
    refused_full: AtomicU64,
    opened: AtomicU64,
    probes: AtomicU64,
}

/// What a line has seen since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineStats {
    /// Calls that went out.
    pub calls: u64,
    /// Of them, those that ended in any error but the deadline.
    pub failed: u64,
    /// Of them, those that missed the deadline.
    pub timed_out: u64,
    /// Calls refused because the breaker was open.
    pub refused_open: u64,
    /// Calls refused because too many were under way.
    pub refused_full: u64,
    /// How often the breaker opened.
    pub opened: u64,
    /// Probes sent while it was open.
    pub probes: u64,
    /// Calls under way now.
    pub in_flight: u64,
    /// Whether the breaker is open now.
    pub open: bool,
}

impl LineStats {
    /// Both together, for an engine of several nodes.
    pub fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            failed: self.failed + other.failed,
            timed_out: self.timed_out + other.timed_out,
            refused_open: self.refused_open + other.refused_open,
            refused_full: self.refused_full + other.refused_full,
            opened: self.opened + other.opened,
            probes: self.probes + other.probes,
            in_flight: self.in_flight + other.in_flight,
            open: self.open || other.open,
        }
    }

    /// What remains of a line that is no longer used.
    pub fn past(self) -> Self {
        Self { in_flight: 0, open: false, ..self }
    }
}

impl Line {
    /// A line that finds out by `probe` whether its engine is back.
    pub fn new(options: LineOptions, probe: Probe) -> Self {
        Self(Arc::new(Inner {
            options,
            breaker: Breaker::new(options.opens_after),
            slots: Semaphore::new(options.in_flight_max.clamp(1, Semaphore::MAX_PERMITS)),
            counters: Counters::default(),
            probe,
            away: Mutex::new(StoreError::unavailable("it is being probed")),
        }))
    }

    /// Makes one call. `work` runs only if the line is not refused, and no longer than the deadline.
    pub async fn call<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let inner = &*self.0;
        if inner.breaker.is_open() {
            inner.counters.refused_open.fetch_add(1, Relaxed);
            return Err(inner.away().clone());
        }
        let Ok(_slot) = inner.slots.try_acquire() else {
            inner.counters.refused_full.fetch_add(1, Relaxed);
            return Err(StoreError::unavailable("too many calls are waiting for it"));
        };
        inner.counters.calls.fetch_add(1, Relaxed);
        let deadline = inner.options.deadline;
        let result = timeout(deadline, work).await.unwrap_or(Err(StoreError::Deadline(deadline)));
        self.note(result.as_ref().err());
        result
    }

    /// What it has seen so far.
    pub fn stats(&self) -> LineStats {
        let Inner { options, breaker, slots, counters, .. } = &*self.0;
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        LineStats {
            calls: read(&counters.calls),
            failed: read(&counters.failed),
            timed_out: read(&counters.timed_out),
            refused_open: read(&counters.refused_open),
            refused_full: read(&counters.refused_full),
            opened: read(&counters.opened),
            probes: read(&counters.probes),
            in_flight: options.in_flight_max.saturating_sub(slots.available_permits()) as u64,
            open: breaker.is_open(),
        }
    }

    /// Opens the breaker at once: the engine is known to be away, as when it is at start.
    pub fn open(&self) {
        if self.0.breaker.open() {
            self.opened();
        }
    }

    fn note(&self, error: Option<&StoreError>) {
        let Inner { breaker, counters, .. } = &*self.0;
        match error {
            Some(StoreError::Deadline(_)) => counters.timed_out.fetch_add(1, Relaxed),
            Some(_) => counters.failed.fetch_add(1, Relaxed),
            None => 0,
        };
        match error.filter(|error| error.is_outage()) {
            None => breaker.answered(),
            Some(outage) => {
                if breaker.failed() {
                    self.0.is_away_since(outage);
                    self.opened();
                }
            }
        }
    }

    fn opened(&self) {
        self.0.counters.opened.fetch_add(1, Relaxed);
        tokio::spawn(probe_until_answered(Arc::downgrade(&self.0)));
    }
}

/// Ends when the engine answers, or nobody holds the line any more.
async fn probe_until_answered(line: Weak<Inner>) {
    let mut probes = JoinSet::new();
    loop {
        let Some(pause) = line.upgrade().map(|line| jittered(line.options.probe_every)) else { return };
        let answered = timeout(pause, first_answer(&mut probes)).await.is_ok();
        let Some(line) = line.upgrade() else { return };
        if answered {
            return line.breaker.close();
        }
        if probes.len() < PROBES_MAX {
            line.counters.probes.fetch_add(1, Relaxed);
            probes.spawn(async move { line.probe_once().await });
        }
    }
}

/// Waits for a probe that is answered, for ever if none is under way.
async fn first_answer(probes: &mut JoinSet<bool>) {
    loop {
        match probes.join_next().await {
            Some(Ok(true)) => return,
            Some(_) => {}
            None => return pending().await,
        }
    }
}

impl Inner {
    async fn probe_once(&self) -> bool {
        let answer = timeout(PROBE_MAX, (self.probe)()).await.unwrap_or(Err(StoreError::Deadline(PROBE_MAX)));
        answer.inspect_err(|error| self.is_away_since(error)).is_ok()
    }
}

/// Between half and one and a half of `wait`, so that a fleet does not knock in step.
fn jittered(wait: Duration) -> Duration {
    let dice = RandomState::new().hash_one(0) % 1_024;
    wait / 2 + wait.mul_f64(dice as f64 / 1_024.0)
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("options", &self.0.options).field("stats", &self.stats()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use tokio::time::sleep;

    use super::*;

    fn line(answers: Arc<AtomicBool>, options: LineOptions) -> Line {
        let probe = move || -> Pin<Box<dyn Future<Output = _> + Send>> {
            let up = answers.load(Relaxed);
            Box::pin(async move { if up { Ok(()) } else { Err(StoreError::unavailable("down")) } })
        };
        Line::new(options, Box::new(probe))
    }

    async fn down() -> Result<(), StoreError> {
        Err(StoreError::unavailable("down"))
    }

    #[tokio::test(start_paused = true)]
    async fn outages_open_it_and_a_probe_closes_it() {
        let up = Arc::new(AtomicBool::new(false));
        let line = line(up.clone(), LineOptions::default());
        for _ in 0..5 {
            assert!(line.call(down()).await.is_err());
        }
        let never = async { panic!("refused at once, so never polled") };
        let refused = line.call::<()>(never).await.unwrap_err();
        assert!(refused.is_outage() && refused.to_string().contains("down"), "it says why: {refused}");
        sleep(Duration::from_secs(1)).await;
        assert!(line.stats().open && line.stats().probes >= 5);

        up.store(true, Relaxed);
        sleep(Duration::from_millis(151)).await;
        assert_eq!(line.call(async { Ok(7) }).await, Ok(7));
        assert_eq!((line.stats().opened, line.stats().refused_open), (1, 1));
    }

    /// A probe that hears nothing, as over a half-open connection, does not hold up the one after it.
    #[tokio::test(start_paused = true)]
    async fn a_probe_that_hangs_does_not_keep_the_engine_away() {
        let probes = AtomicU64::new(0);
        let probe = move || -> Pin<Box<dyn Future<Output = _> + Send>> {
            let first = probes.fetch_add(1, Relaxed) == 0;
            Box::pin(async move { if first { pending().await } else { Ok(()) } })
        };
        let line = Line::new(LineOptions::default(), Box::new(probe));
        line.open();
        sleep(Duration::from_millis(302)).await;
        assert_eq!(line.call(async { Ok(7) }).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_at_its_deadline() {
        let line = line(Arc::default(), LineOptions::default());
        let late = line.call(pending::<Result<(), _>>()).await;
        assert_eq!(late, Err(StoreError::Deadline(Duration::from_millis(100))));
        assert_eq!((line.stats().timed_out, line.stats().in_flight), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_may_take_longer_than_a_short_deadline() {
        let slow = || -> Pin<Box<dyn Future<Output = _> + Send>> {
            Box::pin(async {
                sleep(Duration::from_millis(50)).await;
                Ok(())
            })
        };
        let options = LineOptions { deadline: Duration::from_millis(2), ..LineOptions::default() };
        let line = Line::new(options, Box::new(slow));
        line.open();
        sleep(Duration::from_secs(1)).await;
        let LineStats { open, opened, failed, calls, probes, .. } = line.stats();
        assert_eq!((open, opened, failed, calls, probes), (false, 1, 0, 0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_too_many_is_refused_at_once() {
        let line = line(Arc::default(), LineOptions { in_flight_max: 1, ..LineOptions::default() });
        let (waiting, refused) = tokio::join!(line.call(pending::<Result<(), _>>()), line.call(down()));
        assert!(matches!(waiting, Err(StoreError::Deadline(_))));
        assert!(matches!(refused, Err(StoreError::Unavailable(_))));
        assert_eq!(line.stats().refused_full, 1);
    }

    #[tokio::test]
    async fn what_time_does_not_heal_does_not_open_it() {
        let line = line(Arc::default(), LineOptions::default());
        for _ in 0..50 {
            let _ = line.call::<()>(async { Err(StoreError::bad_state("k")) }).await;
        }
        assert!(!line.stats().open);
    }
}
