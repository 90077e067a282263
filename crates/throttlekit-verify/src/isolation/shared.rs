//! What callers share, whatever its type is.

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

/// A future of whatever kind.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A value that callers of several runtimes share.
pub trait Shared: Send + Sync {
    /// Makes one call, and all that follows from it: debits, work, releases.
    fn call(self: Arc<Self>, step: Step) -> Boxed<Seen>;

    /// What is wrong when everyone has stopped and all is settled; asked until nothing is, for a while.
    fn left_behind(&self) -> Option<String> {
        None
    }
}

/// One call of one caller.
#[derive(Clone)]
pub struct Step {
    /// Decides on keys and costs.
    pub dice: u64,
    /// How long work takes that runs under a lease; longer than the lease, for the first call of a caller.
    pub work: Duration,
    /// When callers stop.
    pub watch: Watch,
}

/// What a caller saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// An answer: allowed or denied.
    Answer,
    /// The store was said to be away, and why.
    Outage(String),
    /// An error that is not an outage.
    Error(String),
    /// The caller gave up by itself.
    GaveUp,
    /// The future was dropped, or the schedule had ended.
    Dropped,
}

/// Holds every wait to its documented deadline.
#[derive(Clone)]
pub struct Watch {
    own_timeout: Option<Duration>,
    /// Whether a lease must outlive what is wrong with the store.
    leases_survive: bool,
    timing: Timing,
    found: Found,
}

/// What is wrong with a schedule, shared by all who look.
#[derive(Clone, Default)]
pub struct Found(Arc<Mutex<Vec<String>>>, Arc<AtomicU64>);

impl Found {
    /// Counts what would have been wrong on a machine that is not so late.
    pub fn excuse(&self) {
        self.1.fetch_add(1, Relaxed);
    }

    /// How often that was.
    pub fn excused(&self) -> u64 {
        self.1.load(Relaxed)
    }

    /// Notes what was promised and what happened instead.
    pub fn note(&self, wrong: String) {
        self.0.lock().push(wrong);
    }

    /// All of it so far.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

impl Watch {
    /// The watch of a caller who may give up by itself.
    pub fn new(own_timeout: Option<Duration>, leases_survive: bool, timing: Timing, found: Found) -> Self {
        Self { own_timeout, leases_survive, timing, found }
    }

    /// Runs work under a lease, and notes if it was fenced: unless the store was away for longer than a lease lives, or the
    /// machine woke threads up so late that renewals missed their deadline.
    pub async fn leased<T, E>(&self, what: &str, work: impl Future<Output = Result<T, E>>) {
        let begun = BootClock.now();
        if work.await.is_ok() || !self.leases_survive {
            return;
        }
        let now = BootClock.now();
        // A lease that ends now was last renewed a life ago.
        let renewed = begun.as_nanos().saturating_sub(self.timing.lives.as_nanos() as u64);
        if worst_between(Timestamp::from_nanos(renewed), now) > self.timing.deadline / 2 {
            self.found.excuse();
        } else {
            self.wrong(format!("work {what} was fenced after {:?}", now.since(begun)));
        }
    }

    /// Notes what is wrong.
    pub fn wrong(&self, wrong: String) {
        self.found.note(wrong);
    }

    /// Waits for a call that is documented to answer within `bound`. Nothing, if the caller gave up by itself or the call
    /// did not answer: the latter is noted.
    pub async fn within<T>(&self, what: &str, bound: Duration, call: impl Future<Output = T>) -> Option<T> {
        match self.own_timeout.filter(|own| *own < bound) {
            Some(own) => timeout(own, call).await.ok(),
            None => self.patiently(what, bound, call).await,
        }
    }

    /// The same for what a caller does not give up by itself.
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

    /// A busy machine is given more time as it is found to be busy.
    fn left(begun: Timestamp, bound: Duration) -> Duration {
        let now = BootClock.now();
        (bound + slack_between(begun, now)).saturating_sub(now.since(begun))
    }
}

/// What one schedule stands on: a store of its own, or a way of its own to one.
pub trait Bench: Send + Sync {
    /// Builds the shared value, on the runtime that this is polled on.
    fn build(&self, schedule: Schedule) -> Boxed<Result<Arc<dyn Shared>, String>>;

    /// Lets something be wrong with the store.
    fn trouble(&self, trouble: Trouble);

    /// Lets all be well again, but for connections that fell silent.
    fn heal(&self);

    /// Whether a circuit breaker is open; nothing where nobody is left who would know.
    fn breaker_open(&self) -> Option<bool>;

    /// How many connections are open, and how many there may be.
    fn connections(&self) -> (usize, usize);

    /// Whether anything still holds the store's handle.
    fn is_held(&self) -> bool;
}
