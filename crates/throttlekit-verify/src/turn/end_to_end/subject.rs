//! The production queue, and the edges at which bugs are seeded.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::admit::{Admission, Admit, Admitting, LimitInfo, SharedPermit};
use throttlekit::clock::Clock;
use throttlekit::wait::{NotReady, Queue};
use throttlekit::{Axis, Call, Decision, Limiter, Retry};
use throttlekit_core::Timestamp;
use throttlekit_core::rate::Limit;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{End, KEYS, Planned, QueueBug};

/// The instant at which a schedule starts, for the limiter.
pub(super) const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// A queue over a limiter, with a bug or without.
#[derive(Clone)]
pub(super) struct Subject {
    queue: Queue<Counted>,
    bug: Option<QueueBug>,
}

impl Subject {
    pub(super) fn new(limit: Limit, bug: Option<QueueBug>) -> Self {
        let limiter =
            Limiter::builder(limit).clock(PausedClock(Instant::now())).build().expect("a valid limit");
        let halves = bug == Some(QueueBug::WaitHalved);
        let builder = Queue::builder(Counted { limiter, requests: AtomicUsize::new(0), halves });
        let one_for_all = bug == Some(QueueBug::OneQueueForAllKeys);
        let builder = if one_for_all { builder.ignore_keys() } else { builder };
        Self { queue: builder.build().expect("valid settings"), bug }
    }

    pub(super) fn requests(&self) -> usize {
        self.queue.limiter().requests.load(Relaxed)
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Makes a call, and drops it when it is cancelled.
    pub(super) async fn call(&self, planned: Planned) -> End {
        let mut work = Box::pin(self.wait(planned));
        let Some(after) = planned.cancelled_after else { return work.await };
        let end = timeout_at(Instant::now() + after, work.as_mut()).await;
        if end.is_err() && self.bug == Some(QueueBug::CancelledNotDropped) {
            std::mem::forget(work);
        }
        end.unwrap_or(End::Cancelled)
    }

    async fn wait(&self, planned: Planned) -> End {
        let call = Call::by(KEYS[planned.key]).cost(planned.cost).priority(planned.class);
        let timeout = match self.bug {
            Some(QueueBug::EveryCallRetries) => return self.retry(call, planned.timeout).await,
            Some(QueueBug::SleepsOnce) => return self.sleep_once(call, planned.timeout).await,
            Some(QueueBug::TimeoutDoubled) => planned.timeout * 2,
            _ => planned.timeout,
        };
        let deadline = Instant::now() + timeout;
        match self.queue.until_ready_timeout(call, timeout).await {
            Ok(_) => End::Admitted,
            Err(NotReady::Timeout(_)) => {
                if self.bug == Some(QueueBug::WaitsInVain) {
                    sleep_until(deadline).await;
                }
                End::TimedOut
            }
            Err(_) => End::Other,
        }
    }

    /// A seeded bug: retries without a queue.
    async fn retry(&self, call: Call<'_>, timeout: Duration) -> End {
        let deadline = Instant::now() + timeout;
        loop {
            let Some(wait) = self.request(call) else { return End::Admitted };
            if Instant::now() + wait > deadline {
                return End::TimedOut;
            }
            sleep(wait).await;
        }
    }

    /// A seeded bug: does not request again.
    async fn sleep_once(&self, call: Call<'_>, timeout: Duration) -> End {
        match self.request(call) {
            None => End::Admitted,
            Some(wait) if wait > timeout => End::TimedOut,
            Some(wait) => {
                sleep(wait).await;
                End::Admitted
            }
        }
    }

    /// Requests the limiter, and returns the wait after a denial.
    fn request(&self, call: Call<'_>) -> Option<Duration> {
        let decided = self.queue.limiter().admit(call).now_or_later();
        let admission = decided.ok().and_then(Result::ok).expect("decided in process");
        if admission.allowed { None } else { admission.retry_after.wait() }
    }
}

/// Reads tokio's time.
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        START + self.0.elapsed()
    }
}

/// A limiter whose requests are counted.
struct Counted {
    limiter: Limiter<PausedClock>,
    requests: AtomicUsize,
    halves: bool,
}

impl Admit for Counted {
    fn admit(&self, call: Call<'_>) -> Admitting {
        self.requests.fetch_add(1, Relaxed);
        let decision = self.limiter.check(call);
        let retry_after = match decision.retry_after {
            Retry::After(wait) if self.halves => Retry::After(wait / 2),
            other => other,
        };
        let decision = Decision { retry_after, ..decision };
        Admitting::ready(Ok(Admission::of(Axis::Rate, decision, SharedPermit::none())))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        Vec::new()
    }

    fn now(&self) -> Timestamp {
        self.limiter.now()
    }
}
