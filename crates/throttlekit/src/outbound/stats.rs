//! Counters of an upstream.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::reported::Quota;
use crate::admit::{Admission, StoreError};

/// Bounds of the wait times: each is twice the one before.
const BUCKETS: usize = 20;
const FIRST_BOUND: Duration = Duration::from_millis(1);

/// Counters of an [`Outbound`](super::Outbound).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboundStats {
    /// Calls that wait now.
    pub waiting: u64,
    /// Calls that were admitted.
    pub admitted: u64,
    /// Calls that were not: the wait was too long, the queue full, or the store unavailable.
    pub not_ready: u64,
    /// Denials that calls waited for instead of being sent: refusals avoided.
    pub avoided: u64,
    /// Responses that were refusals (429, 503, 529): refusals suffered.
    pub refused: u64,
    /// Retries of refused calls, by the layer.
    pub retried: u64,
    /// Time that admitted calls waited, in total.
    pub waited: Duration,
    /// Limits of each key, as learned.
    pub keys: Vec<KeyLimits>,
    pub(super) waits: WaitTimes,
}

impl OutboundStats {
    /// Iterates over the histogram of waits of admitted calls: the number of calls that waited at most a time, and longer
    /// than the one before. Bounds double from one millisecond to nine minutes; `None` is longer than all others.
    pub fn waits(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        self.waits.iter()
    }

    /// Returns a time that this part of the waits, in percent, did not exceed. `None` if there are none, or if that is
    /// longer than all bounds.
    pub fn wait_percentile(&self, percent: u8) -> Option<Duration> {
        self.waits.percentile(percent)
    }
}

/// Limits of one key, as its responses report them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyLimits {
    /// The key.
    pub key: Box<[u8]>,
    /// Requests by the minute that are in use at most. `None`: there is no limit.
    pub requests_per_minute: Option<u64>,
    /// Tokens by the minute that are in use at most. `None`: there is no limit.
    pub tokens_per_minute: Option<u64>,
    /// Time until the next call may start, by what was learned.
    pub wait: Duration,
    /// Limit on requests that the last response reported.
    pub requests: Option<Quota>,
    /// Limit on tokens that the last response reported.
    pub tokens: Option<Quota>,
}

/// A histogram of wait times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WaitTimes([u64; BUCKETS + 1]);

impl WaitTimes {
    fn iter(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bound = |index: usize| (index < BUCKETS).then(|| FIRST_BOUND * (1 << index));
        self.0.into_iter().enumerate().map(move |(index, calls)| (bound(index), calls))
    }

    fn percentile(&self, percent: u8) -> Option<Duration> {
        let all: u64 = self.0.iter().sum();
        let mut missing = (u128::from(all) * u128::from(percent.min(100))).div_ceil(100);
        let mut buckets = self.iter().filter(|(_, calls)| *calls > 0);
        let last = buckets.find(|(_, calls)| {
            missing = missing.saturating_sub(u128::from(*calls));
            missing == 0
        });
        last?.0
    }
}

/// The counters that threads add to.
#[derive(Debug, Default)]
pub(super) struct Counters {
    admitted: AtomicU64,
    not_ready: AtomicU64,
    avoided: AtomicU64,
    refused: AtomicU64,
    retried: AtomicU64,
    waited_nanos: AtomicU64,
    waits: [AtomicU64; BUCKETS + 1],
}

impl Counters {
    /// Counts a decision of the limiter.
    pub(super) fn decided(&self, result: &Result<Admission, StoreError>) {
        if result.as_ref().is_ok_and(|admission| !admission.allowed) {
            self.avoided.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn admitted(&self, wait: Duration) {
        self.admitted.fetch_add(1, Relaxed);
        if wait.is_zero() {
            self.waits[0].fetch_add(1, Relaxed);
            return;
        }
        self.waited_nanos.fetch_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        let doublings = wait.as_nanos().div_ceil(FIRST_BOUND.as_nanos()).max(1).next_power_of_two().ilog2();
        self.waits[(doublings as usize).min(BUCKETS)].fetch_add(1, Relaxed);
    }

    pub(super) fn not_ready(&self) {
        self.not_ready.fetch_add(1, Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(super) fn retried(&self) {
        self.retried.fetch_add(1, Relaxed);
    }

    pub(super) fn read(&self) -> OutboundStats {
        let waits = std::array::from_fn(|index| self.waits[index].load(Relaxed));
        OutboundStats {
            waiting: 0,
            admitted: self.admitted.load(Relaxed),
            not_ready: self.not_ready.load(Relaxed),
            avoided: self.avoided.load(Relaxed),
            refused: self.refused.load(Relaxed),
            retried: self.retried.load(Relaxed),
            waited: Duration::from_nanos(self.waited_nanos.load(Relaxed)),
            waits: WaitTimes(waits),
            keys: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_times_are_counted_below_their_bounds() {
        let counters = Counters::default();
        let millis = Duration::from_millis;
        for wait in [
            Duration::ZERO,
            millis(1),
            Duration::from_nanos(1_000_001),
            millis(2),
            millis(3),
            millis(1_000_000),
        ] {
            counters.admitted(wait);
        }
        let stats = counters.read();
        assert_eq!(stats.waited, millis(1_000_007) + Duration::from_nanos(1_000_001) - millis(1));
        let waits = stats.waits;
        let counted: Vec<_> = waits.iter().filter(|(_, calls)| *calls > 0).collect();
        assert_eq!(counted, [(Some(millis(1)), 2), (Some(millis(2)), 2), (Some(millis(4)), 1), (None, 1)]);
        assert_eq!(waits.percentile(50), Some(millis(2)));
        assert_eq!(waits.percentile(80), Some(millis(4)));
        assert_eq!(waits.percentile(100), None);
        assert_eq!(WaitTimes::default().percentile(50), None);
    }
}
