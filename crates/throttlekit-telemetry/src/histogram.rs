//! Histograms of decisions: fixed buckets, one increment and one addition each.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of buckets, the one without an upper bound included.
const BUCKETS: usize = 11;

/// Upper bounds of the buckets of costs, in units.
const COSTS: [u64; BUCKETS - 1] = [1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144];

/// Upper bounds of the buckets of waits, in milliseconds: 10 ms to a day.
const WAITS_MS: [u64; BUCKETS - 1] =
    [10, 100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 3_600_000, 86_400_000];

/// Counts of values by bucket, and their sum.
#[derive(Default)]
pub(crate) struct Buckets {
    counts: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Buckets {
    /// Counts a cost, in units.
    #[inline]
    pub(crate) fn count_cost(&self, cost: u64) {
        self.count(cost, &COSTS);
    }

    /// Counts a wait, in milliseconds.
    #[inline]
    pub(crate) fn count_wait(&self, wait_ms: u64) {
        self.count(wait_ms, &WAITS_MS);
    }

    #[inline]
    fn count(&self, value: u64, bounds: &[u64; BUCKETS - 1]) {
        let bucket = bounds.iter().take_while(|bound| value > **bound).count();
        self.counts[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    pub(crate) fn costs(&self) -> Histogram {
        self.read(&COSTS, 1.0)
    }

    pub(crate) fn waits(&self) -> Histogram {
        self.read(&WAITS_MS, 1_000.0)
    }

    fn read(&self, bounds: &[u64; BUCKETS - 1], unit: f64) -> Histogram {
        let bounds = bounds.iter().map(|bound| *bound as f64 / unit).chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        Histogram { buckets: bounds.zip(counts).collect(), sum: self.sum.load(Relaxed) as f64 / unit }
    }
}

/// A histogram, read once.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    buckets: Vec<(f64, u64)>,
    sum: f64,
}

impl Histogram {
    /// Returns the upper bound of each bucket, included in it, and the number of values in it. The last bound is
    /// infinite.
    pub fn buckets(&self) -> &[(f64, u64)] {
        &self.buckets
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Returns the sum of the values. Read after the buckets, so it may include values that they do not have yet.
    pub fn sum(&self) -> f64 {
        self.sum
    }
}

/// Upper bounds of the histograms for costs and for waits in seconds, as OpenTelemetry takes them.
#[cfg(feature = "opentelemetry")]
pub(crate) fn boundaries() -> [Vec<f64>; 2] {
    let empty = Buckets::default();
    [empty.costs(), empty.waits()]
        .map(|histogram| histogram.buckets[..BUCKETS - 1].iter().map(|(bound, _)| *bound).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_at_a_bound_is_in_its_bucket_and_the_next_one_is_not() {
        let buckets = Buckets::default();
        [0, 1, 2, 4, 5, 262_144, 262_145].into_iter().for_each(|cost| buckets.count_cost(cost));
        let read = buckets.costs();
        let filled: Vec<_> = read.buckets().iter().filter(|(_, count)| *count > 0).copied().collect();
        assert_eq!(filled, [(1.0, 2), (4.0, 2), (16.0, 1), (262_144.0, 1), (f64::INFINITY, 1)]);
        assert_eq!((read.count(), read.sum()), (7, 524_301.0));
    }

    #[test]
    fn waits_are_reported_in_seconds() {
        let buckets = Buckets::default();
        [10, 1_500].into_iter().for_each(|wait| buckets.count_wait(wait));
        let read = buckets.waits();
        let filled: Vec<_> = read.buckets().iter().filter(|(_, count)| *count > 0).copied().collect();
        assert_eq!((filled, read.sum()), (vec![(0.01, 1), (5.0, 1)], 1.51));
    }
}
