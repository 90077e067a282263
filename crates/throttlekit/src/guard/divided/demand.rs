//! Demand of a node: the number in flight if nothing were denied.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use throttlekit_core::Timestamp;

use crate::sync::{AtomicU32, AtomicU64};

/// One admission in this many is counted, for all of them: counting each would cost as much as the admission.
const COUNTED_OF: u64 = 16;

/// Counters written by all threads. On a cache line of their own: they are written now and then.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Demand {
    admitted: AtomicU64,
    denied: AtomicU64,
    peak: AtomicU32,
}

impl Demand {
    /// Counts sixteen admissions, for the one in sixteen that is sampled.
    #[cold]
    pub(super) fn sixteen(&self, in_flight: u32) {
        self.admitted.fetch_add(COUNTED_OF, Relaxed);
        self.peak.fetch_max(in_flight, Relaxed);
    }

    /// Counts an admission that had waited.
    pub(super) fn one(&self) {
        self.admitted.fetch_add(1, Relaxed);
    }

    /// Counts a denial, with this many in flight.
    pub(super) fn denied(&self, in_flight: u32) {
        self.denied.fetch_add(1, Relaxed);
        if self.peak.load(Relaxed) < in_flight {
            self.peak.fetch_max(in_flight, Relaxed);
        }
    }

    pub(super) fn denied_so_far(&self) -> u64 {
        self.denied.load(Relaxed)
    }

    fn seen(&self, in_flight: u32) -> Seen {
        let (admitted, denied) = (self.admitted.load(Relaxed), self.denied.load(Relaxed));
        Seen { admitted, denied, peak: self.peak.load(Relaxed).max(in_flight) }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    admitted: u64,
    denied: u64,
    peak: u32,
}

/// The counts of this window and the one before it: long enough that a few admissions do not make shares jump, and
/// short enough to follow the demand.
#[derive(Debug)]
pub(super) struct Meter {
    window: Duration,
    since: Timestamp,
    base: Seen,
    before: Seen,
}

impl Meter {
    pub(super) fn new(window: Duration) -> Self {
        Self { window, since: Timestamp::EPOCH, base: Seen::default(), before: Seen::default() }
    }

    /// Returns the peak in flight, times the ratio of requests to admissions.
    pub(super) fn wants(&mut self, demand: &Demand, in_flight: u32, now: Timestamp) -> u32 {
        let total = demand.seen(in_flight);
        let (admitted, denied) = (total.admitted - self.base.admitted, total.denied - self.base.denied);
        let here = Seen { admitted, denied, peak: total.peak };
        let wants = wants(here, self.before);
        if now.since(self.since) >= self.window {
            (self.since, self.base, self.before) = (now, total, here);
            demand.peak.store(in_flight, Relaxed);
        }
        wants
    }
}

fn wants(here: Seen, before: Seen) -> u32 {
    let (admitted, denied) = (here.admitted + before.admitted, here.denied + before.denied);
    // A node without a share is denied with nothing in flight, but still has demand.
    let peak = here.peak.max(before.peak).max(u32::from(denied > 0));
    let asks = u128::from(admitted) + u128::from(denied);
    let wants = (u128::from(peak) * asks).div_ceil(u128::from(admitted.max(1)));
    u32::try_from(wants).unwrap_or(u32::MAX).max(peak)
}

#[cfg(all(test, not(loom)))]
mod unit {
    use super::*;

    fn told(demand: &Demand, meter: &mut Meter, in_flight: u32, ms: u64) -> u32 {
        meter.wants(demand, in_flight, Timestamp::from_millis(10_000 + ms))
    }

    #[test]
    fn demand_without_denials_is_the_peak_in_flight() {
        let (demand, mut meter) = (Demand::default(), Meter::new(Duration::from_millis(100)));
        assert_eq!(told(&demand, &mut meter, 0, 0), 0);
        demand.sixteen(7);
        assert_eq!(told(&demand, &mut meter, 2, 10), 7);
        assert_eq!(told(&demand, &mut meter, 2, 110), 7, "this window ends");
        assert_eq!(told(&demand, &mut meter, 3, 220), 7, "and is the one before");
        assert_eq!(told(&demand, &mut meter, 3, 330), 3);
    }

    #[test]
    fn demand_grows_with_the_ratio_of_denied_requests() {
        let (demand, mut meter) = (Demand::default(), Meter::new(Duration::from_millis(100)));
        demand.sixteen(5);
        (0..24).for_each(|_| demand.denied(5));
        assert_eq!(told(&demand, &mut meter, 5, 0), 13, "five times forty of sixteen, rounded up");
    }

    #[test]
    fn demand_without_a_share_is_the_number_of_denials() {
        let (demand, mut meter) = (Demand::default(), Meter::new(Duration::from_millis(100)));
        (0..9).for_each(|_| demand.denied(0));
        assert_eq!(told(&demand, &mut meter, 0, 0), 9);
        assert_eq!(told(&demand, &mut meter, 0, 200), 9);
        assert_eq!(told(&demand, &mut meter, 0, 400), 0);
    }
}
