//! The requests of one window, and how they were answered.

use std::collections::BTreeMap;
use std::time::Duration;

use throttlekit::store::Store;
use throttlekit::{Guarantee, Limit, SharedLimiter};
use tokio::time::{sleep, timeout};

/// The limit of a window, which no round outlasts.
pub const LIMIT: u64 = 20;
const DAY: Duration = Duration::from_secs(86_400);
/// A window that is over soon, to see that a label is exact again when it is.
const SOON: Duration = Duration::from_secs(1);
const BACK_MAX: Duration = Duration::from_secs(60);

/// One window of one key, over all processes and servers that took part.
#[derive(Clone, Debug)]
pub struct Window {
    key: &'static str,
    /// Requests admitted before anything was lost, and how many of them were called exact.
    pub healthy: (u64, u64),
    /// Whether the label was not exact at the end, where it must not be, and was for a limit that had passed.
    pub came_back: bool,
    /// Requests admitted.
    pub admitted: u64,
    /// Of them, those admitted when the limit was used up, and called exact.
    pub beyond_exact: u64,
    /// How many responses had each label.
    pub labels: BTreeMap<&'static str, u64>,
}

impl Window {
    pub(super) fn of(key: &'static str) -> Self {
        let labels = BTreeMap::new();
        Self { key, healthy: (0, 0), came_back: false, admitted: 0, beyond_exact: 0, labels }
    }

    /// The limit that every process of a round has.
    pub fn limit() -> Limit {
        Limit::fixed_window(LIMIT, DAY).expect("a valid limit")
    }

    /// A limit that has passed by the end of a round.
    pub(super) fn soon() -> Limit {
        Limit::fixed_window(LIMIT, SOON).expect("a valid limit")
    }

    /// What was admitted so far was admitted by a server that had lost nothing.
    pub(super) fn was_healthy(&mut self) {
        self.healthy = (self.admitted, self.labels.get("exact").copied().unwrap_or(0));
    }

    /// Waits until a limit that is over soon has passed.
    pub(super) async fn soon_has_passed() {
        sleep(SOON).await;
    }

    /// Judges the label of a process that was there, and that of a new one for which all that was lost is past.
    pub(super) async fn judge_label<S: Store>(
        &mut self,
        there: &SharedLimiter<S>,
        passed: &SharedLimiter<S>,
    ) {
        // A machine that is busy may miss a deadline; what the store answers is judged.
        let label = async |limiter: &SharedLimiter<S>| loop {
            match limiter.check("label").await {
                Ok(answer) if answer.outage.is_some() => sleep(Duration::from_millis(10)).await,
                answer => break answer.map_or("error", |answer| answer.guarantee.label()),
            }
        };
        let labels = timeout(BACK_MAX, async { (label(there).await, label(passed).await) });
        self.came_back = labels.await == Ok(("bounded", "exact"));
    }

    /// Whether more was admitted than the limit.
    pub fn is_over(&self) -> bool {
        self.admitted > LIMIT
    }

    /// Sends requests one after another. Returns how many the store answered.
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

    /// Sends requests until the store answers one.
    pub async fn send_until_back<S: Store>(&mut self, limiter: &SharedLimiter<S>) {
        let back = async {
            while self.send(limiter, 1).await == 0 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(BACK_MAX, back).await.expect("the store is found again");
    }
}
