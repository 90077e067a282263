//! The common interface of all shared types.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use tokio::time::timeout;

use super::lateness::{slack_between, worst_between};
use super::schedule::{Schedule, Timing, Trouble};

/// A boxed future.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A value that callers of several runtimes share.
pub trait Shared: Send + Sync {
    /// Makes one call, and everything that follows from it: debits, work, releases.
    fn call(self: Arc<Self>, step: Step) -> Boxed<Seen>;

    /// Returns what is wrong when all callers have stopped and everything is settled. Polled for a while
    /// until nothing is.
    fn left_behind(&self) -> Option<String> {
        None
    }
}

/// One call of one caller.
#[derive(Clone)]
pub struct Step {
    /// The seed of keys and costs.
    pub dice: u64,
    /// The duration of work under a lease; longer than the lease for the first call of a caller.
    pub work: Duration,
    /// The checks of its waits.
    pub watch: Watch,
}

/// The observation of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A response: allowed or denied.
    Answer,
    /// The store was reported as unavailable, with the reason.
    Outage(String),
    /// An error that is not an outage.
    Error(String),
    /// The caller's own timeout.
    GaveUp,
    /// The future was dropped, or the schedule had ended.
    Dropped,
}

/// Checks every wait against its documented deadline.
#[derive(Clone)]
pub struct Watch {
    own_timeout: Option<Duration>,
    /// True if a lease must outlive the store's fault.
    leases_survive: bool,
    timing: Timing,
    found: Found,
}

/// The violations of a schedule, shared by all checks.
#[derive(Clone, Default)]
pub struct Found(Arc<Mutex<Vec<String>>>, Arc<AtomicU64>);

impl Found {
    /// Counts a violation that is attributed to a late machine.
    pub fn excuse(&self) {
        self.1.fetch_add(1, Relaxed);
    }

    /// Returns the number of those.
    pub fn excused(&self) -> u64 {
        self.1.load(Relaxed)
    }

    /// Records a broken promise and the actual behavior.
    pub fn note(&self, wrong: String) {
        self.0.lock().push(wrong);
    }

    /// Returns all violations so far.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

impl Watch {
    /// Creates the checks of a caller that may have its own timeout.
    pub fn new(own_timeout: Option<Duration>, leases_survive: bool, timing: Timing, found: Found) -> Self {
        Self { own_timeout, leases_survive, timing, found }
    }

    /// Runs work under a lease, and records it if it was fenced: unless the store was unavailable for longer
    /// than a lease lives, or the machine woke threads so late that renewals missed their deadline.
    pub async fn leased<T, E>(&self, what: &str, work: impl Future<Output = Result<T, E>>) {
        let begun = BootClock.now();
        if work.await.is_ok() || !self.leases_survive {
            return;
        }
        let now = BootClock.now();
        // A lease that ends now was last renewed a lifetime ago.
        let renewed = begun.as_nanos().saturating_sub(self.timing.lives.as_nanos() as u64);
        if worst_between(Timestamp::from_nanos(renewed), now) > self.timing.deadline / 2 {
            self.found.excuse();
        } else {
            self.wrong(format!("work {what} was fenced after {:?}", now.since(begun)));
        }
    }

    /// Records a violation.
    pub fn wrong(&self, wrong: String) {
        self.found.note(wrong);
    }

    /// Waits for a call that is documented to respond within `bound`. Returns `None` if the caller's own
    /// timeout expired or the call did not respond; the latter is recorded.
    pub async fn within<T>(&self, what: &str, bound: Duration, call: impl Future<Output = T>) -> Option<T> {
        match self.own_timeout.filter(|own| *own < bound) {
            Some(own) => timeout(own, call).await.ok(),
            None => self.patiently(what, bound, call).await,
        }
    }

    /// The same without the caller's own timeout.
    pub async fn patiently<T>(
        &self,
        what: &str,
        bound: Duration,
        call: impl Future<Output = T>,
    ) -> Option<T> {
        let mut call = std::pin::pin!(call);
        let begun = BootClock.now();
        loop {
            let left = Self::left(begun, bound);
            if left.is_zero() {
                let took = BootClock.now().since(begun);
                self.wrong(format!("{what} has not answered after {took:?}, documented: {bound:?}"));
                return None;
            }
            if let Ok(answer) = timeout(left, &mut call).await {
                return Some(answer);
            }
        }
    }

    /// Returns the remaining time, which is extended while the machine is found to be busy.
    fn left(begun: Timestamp, bound: Duration) -> Duration {
        let now = BootClock.now();
        (bound + slack_between(begun, now)).saturating_sub(now.since(begun))
    }
}

/// The environment of one schedule: a store of its own, or a proxy of its own to one.
pub trait Bench: Send + Sync {
    /// Builds the shared value, on the runtime that polls this.
    fn build(&self, schedule: Schedule) -> Boxed<Result<Arc<dyn Shared>, String>>;

    /// Injects a fault of the store.
    fn trouble(&self, trouble: Trouble);

    /// Ends the fault, except for connections that fell silent.
    fn heal(&self);

    /// Returns `true` if a circuit breaker is open; `None` where no handle is left to read it.
    fn breaker_open(&self) -> Option<bool>;

    /// Returns the number of open connections, and the maximum.
    fn connections(&self) -> (usize, usize);

    /// Returns `true` if anything still holds the store's handle.
    fn is_held(&self) -> bool;
}
