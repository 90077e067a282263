//! The conditions under which a decision on a new key leaves its check for evictions to one that follows for many.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Calls in flight from which on checks are shared. A check takes about as long as two decisions, and its callers wait for
/// one more round trip, or two if another check is in flight.
const CALLS_MIN: usize = 8;
/// The deadline must hold this many round trips: that of the decision, of the check in flight and of the next, and one to
/// spare.
const ROUND_TRIPS: u64 = 4;

/// A call in flight on a connection.
pub(crate) struct InFlight<'a> {
    all: &'a AtomicUsize,
    number: usize,
}

impl<'a> InFlight<'a> {
    pub(crate) fn enter(all: &'a AtomicUsize) -> Self {
        Self { all, number: all.fetch_add(1, Relaxed) + 1 }
    }

    pub(crate) fn is_one_of_many(&self) -> bool {
        self.number >= CALLS_MIN
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Relaxed);
    }
}

/// The shortest round trip on a connection, in µs. Longer ones include waits behind other calls: if those counted, a busy
/// server would get the longer scripts.
#[derive(Debug)]
pub(crate) struct RoundTrip(AtomicU64);

impl Default for RoundTrip {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl RoundTrip {
    pub(crate) fn took(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if micros < self.0.load(Relaxed) {
            self.0.fetch_min(micros, Relaxed);
        }
    }

    /// Returns whether a call may take further round trips within its deadline.
    pub(crate) fn may_be_repeated(&self, deadline: Duration) -> bool {
        u128::from(self.0.load(Relaxed)) * u128::from(ROUND_TRIPS) <= deadline.as_micros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eighth_call_in_flight_is_one_of_many() {
        let all = AtomicUsize::new(0);
        let mut calls: Vec<_> = (0..CALLS_MIN).map(|_| InFlight::enter(&all)).collect();
        assert_eq!(calls.iter().filter(|call| call.is_one_of_many()).count(), 1);
        calls.truncate(1);
        assert!(!InFlight::enter(&all).is_one_of_many());
    }

    #[test]
    fn a_round_trip_longer_than_a_quarter_of_the_deadline_is_not_repeated() {
        let (path, deadline) = (RoundTrip::default(), Duration::from_millis(100));
        assert!(!path.may_be_repeated(deadline), "none was measured");
        path.took(Duration::from_micros(25_001));
        assert!(!path.may_be_repeated(deadline));
        path.took(Duration::from_micros(25_000));
        path.took(Duration::from_millis(90));
        assert!(path.may_be_repeated(deadline), "the shortest counts");
    }
}
