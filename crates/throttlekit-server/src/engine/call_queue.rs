//! The queue of calls that wait for the limits of a policy.
//!
//! It is the library's [`Queue`], with its guarantee `turn-order`: one queue for each key, or one for all where only slots
//! that all keys share are limited. A call that does not wait is denied while others of its key do, so nobody overtakes.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::admit::{Admitting, LimitInfo};
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use throttlekit::store::StoreError;
use throttlekit::wait::Queue;
use throttlekit::{Admission, Admit, Axis, BuildError, Call, Guarantee, SharedPermit};

use crate::policy::WaitSpec;

/// The calls that wait for some limits.
pub(super) struct CallQueue {
    queue: Queue<Limits>,
    wait_max: Duration,
}

impl CallQueue {
    /// Creates a queue in front of limits whose decisions can be cancelled. With `one_for_all`, keys wait in one queue.
    pub(super) fn new(limits: impl Admit, spec: &WaitSpec, one_for_all: bool) -> Result<Self, BuildError> {
        let limits = Limits { limits: Arc::new(limits), guarantee: Arc::new(Mutex::new(Guarantee::Exact)) };
        let queue = Queue::builder(limits).max_waiters(spec.calls_max() as usize).max_wait(RESPONSE_MAX);
        let queue = if one_for_all { queue.ignore_keys() } else { queue };
        Ok(Self { queue: queue.build()?, wait_max: spec.max.0 })
    }

    /// Returns the number of calls that wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Returns the time that a call may wait that asks for this one.
    pub(super) fn allows(&self, wait: Duration) -> Duration {
        wait.min(self.wait_max)
    }

    /// Decides a call at once, or when its turn has come and it is allowed, after `wait` at most. When `ends` completes,
    /// the wait is over. Dropped, it leaves nothing behind.
    ///
    /// During an outage of the store nobody waits: the fallback decides at once.
    pub(super) async fn admit(
        &self,
        call: Call<'_>,
        wait: Duration,
        ends: impl Future<Output = ()>,
    ) -> Result<Admission, StoreError> {
        let waited = tokio::select! {
            biased;
            waited = self.queue.until_ready_timeout(call, wait) => waited,
            () = ends => self.queue.until_ready_timeout(call, Duration::ZERO).await,
        };
        let not_ready = match waited {
            Ok(admission) => return Ok(admission),
            Err(not_ready) => not_ready,
        };
        match (not_ready.denied(), not_ready) {
            (Some(denied), _) => {
                let axis = denied.axis.unwrap_or(Axis::Rate);
                let mut admission = Admission::of(axis, denied.decision, SharedPermit::none());
                admission.guarantee = *self.queue.limiter().guarantee.lock();
                Ok(admission)
            }
            (None, throttlekit::wait::NotReady::Store(error)) if !error.is_outage() => Err(error),
            _ => self.queue.limiter().limits.admit(call).await,
        }
    }
}

/// Maximum time for the store to decide a call that does not wait, above the deadline of every store.
const RESPONSE_MAX: Duration = Duration::from_secs(10);

/// Limits that report an outage of the store as an error, which ends a wait.
struct Limits {
    limits: Arc<dyn Admit>,
    /// Guarantee of the last decision. Without an outage it is the same for all.
    guarantee: Arc<Mutex<Guarantee>>,
}

impl Limits {
    fn noted(&self, admitting: Admitting) -> Admitting {
        let guarantee = self.guarantee.clone();
        Admitting::pending(async move {
            let mut admission = admitting.await?;
            if !admission.allowed
                && let Some(outage) = admission.outage.take()
            {
                return Err(outage);
            }
            *guarantee.lock() = admission.guarantee;
            Ok(admission)
        })
    }
}

impl Admit for Limits {
    fn admit(&self, call: Call<'_>) -> Admitting {
        self.noted(self.limits.admit(call))
    }

    fn admit_queued(&self, call: Call<'_>) -> Admitting {
        self.noted(self.limits.admit_queued(call))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.limits.limits()
    }

    fn now(&self) -> Timestamp {
        self.limits.now()
    }
}
