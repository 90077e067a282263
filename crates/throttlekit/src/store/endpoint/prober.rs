//! Probes whether an engine is back, while the breaker is open.

use std::future::pending;
use std::hash::{BuildHasher, RandomState};
use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::Inner;
use crate::store::StoreError;

/// Maximum duration of a probe: it makes a connection, perhaps far away and with TLS, whatever the deadline of calls.
const PROBE_MAX: Duration = Duration::from_secs(2);
/// Maximum number of probes in flight, and one that is about to end. A probe without a response must not keep the next
/// from finding an engine that is back.
const PROBES_MAX: usize = 16;

/// Probes until the engine responds, or the endpoint is dropped.
pub(super) async fn probe_until_answered(line: Weak<Inner>) {
    let mut probes = JoinSet::new();
    let mut newest: Option<AbortHandle> = None;
    loop {
        let Some(pause) = line.upgrade().map(|line| jittered(line.options.probe_every)) else { return };
        let answered = timeout(pause, first_answer(&mut probes)).await.is_ok();
        let Some(line) = line.upgrade() else { return };
        if answered {
            return line.breaker.close();
        }
        // If no slot is left, the newest is dropped: the others may be of an engine that needs all of their time.
        if probes.len() >= PROBES_MAX {
            newest.take().inspect(AbortHandle::abort);
        }
        line.counters.probes.fetch_add(1, Relaxed);
        newest = Some(probes.spawn(async move { line.probe_once().await }));
    }
}

/// Waits for a probe that is answered, forever if none is in flight.
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

/// Returns between half and one and a half of `wait`, so that processes do not probe in step.
fn jittered(wait: Duration) -> Duration {
    let dice = RandomState::new().hash_one(0) % 1_024;
    wait / 2 + wait.mul_f64(dice as f64 / 1_024.0)
}
