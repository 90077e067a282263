//! The queue of calls that wait for the limits of a policy.
//!
//! It is the library's [`Queue`], with its guarantee `turn-order`: one queue for each key, or one for all where only slots
//! that all keys share are limited. A call that does not wait is denied while others of its key do, so nobody overtakes.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::admit::{Admitting, LimitInfo};
use throttlekit::rate::Timestamp;
use throttlekit::store::StoreError;
use throttlekit::wait::Queue;
use throttlekit::{Admission, Admit, Axis, BuildError, Call, SharedPermit};

use crate::policy::WaitSpec;

/// The calls that wait for some limits.
pub(super) struct CallQueue {
    queue: Queue<Limits>,
    wait_max: Duration,
}

impl CallQueue {
    /// Creates a queue in front of limits whose decisions can be cancelled. With `one_for_all`, keys wait in one queue.
    pub(super) fn new(limits: impl Admit, spec: &WaitSpec, one_for_all: bool) -> Result<Self, BuildError> {
        let queue = Queue::builder(Limits(Arc::new(limits)))
            .max_waiters(spec.calls_max() as usize)
            .max_wait(RESPONSE_MAX);
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
                // The guarantee of the decision that is reported: evidence of a store differs between keys.
                admission.guarantee = denied.guarantee;
                Ok(admission)
            }
            (None, throttlekit::wait::NotReady::Store(error)) if !error.is_outage() => Err(error),
            _ => self.queue.limiter().0.admit(call).await,
        }
    }
}

/// Maximum time for the store to decide a call that does not wait, above the deadline of every store.
const RESPONSE_MAX: Duration = Duration::from_secs(10);

/// Limits that report an outage of the store as an error, which ends a wait.
struct Limits(Arc<dyn Admit>);

impl Limits {
    fn without_fallback(admitting: Admitting) -> Admitting {
        Admitting::pending(async move {
            let mut admission = admitting.await?;
            if !admission.allowed
                && let Some(outage) = admission.outage.take()
            {
                return Err(outage);
            }
            Ok(admission)
        })
    }
}

impl Admit for Limits {
    fn admit(&self, call: Call<'_>) -> Admitting {
        Self::without_fallback(self.0.admit(call))
    }

    fn admit_queued(&self, call: Call<'_>) -> Admitting {
        Self::without_fallback(self.0.admit_queued(call))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.0.limits()
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

#[cfg(test)]
mod tests {
    use throttlekit::{Decision, Guarantee, Retry};

    use super::*;

    /// Denies every call. The evidence for `a` is bounded, and that for other keys exact.
    struct Evidence;

    impl Admit for Evidence {
        fn admit(&self, call: Call<'_>) -> Admitting {
            let retry_after = Retry::After(Duration::from_millis(20));
            let (limit, remaining, reset_at) = (1, 0, Timestamp::from_millis(1));
            let decision = Decision { allowed: false, limit, remaining, reset_at, retry_after };
            let mut admission = Admission::of(Axis::Rate, decision, SharedPermit::none());
            admission.guarantee = guarantee_of(call.key());
            Admitting::pending(async move { Ok(admission) })
        }

        fn limits(&self) -> Vec<LimitInfo> {
            Vec::new()
        }

        fn now(&self) -> Timestamp {
            Timestamp::EPOCH
        }
    }

    fn guarantee_of(key: &[u8]) -> Guarantee {
        if key == b"a" { Guarantee::Bounded(7) } else { Guarantee::Exact }
    }

    #[tokio::test]
    async fn a_denied_waiter_gets_the_guarantee_of_its_own_key() {
        let spec: WaitSpec = serde_json::from_value(serde_json::json!({ "max": "1s" })).unwrap();
        let queue = CallQueue::new(Evidence, &spec, false).unwrap();
        let admit = async |key: &'static str, wait| {
            queue.admit(Call::from(key), Duration::from_millis(wait), std::future::pending()).await.unwrap()
        };
        for _ in 0..10 {
            // Each key has a waiter with decisions of its own, and one that joins it and gets none.
            let [a, b, behind_a, behind_b] = [("a", 70), ("b", 70), ("a", 0), ("b", 0)];
            let each = [a, b, behind_a, behind_b].map(|(key, wait)| admit(key, wait));
            let denied = futures_util::future::join_all(each).await;
            let guarantees: Vec<_> = denied.iter().map(|admission| admission.guarantee).collect();
            let own = ["a", "b", "a", "b"].map(|key| guarantee_of(key.as_bytes()));
            assert_eq!(guarantees, own);
            assert!(denied.iter().all(|admission| !admission.allowed));
        }
    }
}
