//! The requests of one window, and their responses.

use std::collections::BTreeMap;
use std::time::Duration;

use throttlekit::store::Store;
use throttlekit::{Guarantee, Limit, SharedLimiter};
use tokio::time::{sleep, timeout};

/// The limit of a window, which is longer than any round.
pub const LIMIT: u64 = 20;
const DAY: Duration = Duration::from_secs(86_400);
/// A short window, to check that a label becomes exact again after it.
const SOON: Duration = Duration::from_secs(1);
const BACK_MAX: Duration = Duration::from_secs(60);

/// One window of one key, over all processes and servers that took part.
#[derive(Clone, Debug)]
pub struct Window {
    key: &'static str,
    /// Requests admitted before anything was lost, and how many of them were labeled exact.
    pub healthy: (u64, u64),
    /// True if the label was not exact at the end, where it must not be, and was exact for a limit whose
    /// window had passed.
    pub came_back: bool,
    /// Requests admitted.
    pub admitted: u64,
    /// Requests admitted when the limit was exhausted, and labeled exact.
    pub beyond_exact: u64,
    /// The number of responses with each label.
    pub labels: BTreeMap<&'static str, u64>,
}

impl Window {
    pub(super) fn of(key: &'static str) -> Self {
        let labels = BTreeMap::new();
        Self { key, healthy: (0, 0), came_back: false, admitted: 0, beyond_exact: 0, labels }
    }

    /// Returns the limit that every process of a round has.
    pub fn limit() -> Limit {
        Limit::fixed_window(LIMIT, DAY).expect("a valid limit")
    }

    /// Returns a limit whose window has passed by the end of a round.
    pub(super) fn soon() -> Limit {
        Limit::fixed_window(LIMIT, SOON).expect("a valid limit")
    }

    /// Records that all admissions so far were made by a server that had lost nothing.
    pub(super) fn was_healthy(&mut self) {
        self.healthy = (self.admitted, self.labels.get("exact").copied().unwrap_or(0));
    }

    /// Waits until the short window has passed.
    pub(super) async fn soon_has_passed() {
        sleep(SOON).await;
    }

    /// Checks the label of an existing process, and that of a new one for which all losses are in the past.
    pub(super) async fn judge_label<S: Store>(
        &mut self,
        there: &SharedLimiter<S>,
        passed: &SharedLimiter<S>,
    ) {
        // A busy machine may miss a deadline; only responses of the store are checked.
        let label = async |limiter: &SharedLimiter<S>| loop {
            match limiter.check("label").await {
                Ok(answer) if answer.outage.is_some() => sleep(Duration::from_millis(10)).await,
                answer => break answer.map_or("error", |answer| answer.guarantee.label()),
            }
        };
        let labels = timeout(BACK_MAX, async { (label(there).await, label(passed).await) });
        self.came_back = labels.await == Ok(("bounded", "exact"));
    }

    /// Returns `true` if more was admitted than the limit.
    pub fn is_over(&self) -> bool {
        self.admitted > LIMIT
    }

    /// Sends requests one after another. Returns the number of responses of the store.
    pub async fn send<S: Store>(&mut self, limiter: &SharedLimiter<S>, requests: u64) -> u64 {
        let mut answered = 0;
        for _ in 0..requests {
            let answer = limiter.check(self.key).await.expect("an answer, if only for want of the store");
            *self.labels.entry(answer.guarantee.label()).or_default() += 1;
            answered += u64::from(answer.outage.is_none());
            if answer.outage.is_none() && answer.decision.allowed {
                self.admitted += 1;
                let exact = answer.guarantee == Guarantee::Exact;
                self.beyond_exact += u64::from(self.is_over() && exact);
            }
        }
        answered
    }

    /// Sends requests until the store responds to one.
    pub async fn send_until_back<S: Store>(&mut self, limiter: &SharedLimiter<S>) {
        let back = async {
            while self.send(limiter, 1).await == 0 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(BACK_MAX, back).await.expect("the store is found again");
    }
}
