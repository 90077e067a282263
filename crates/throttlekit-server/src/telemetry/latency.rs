//! Latencies of decisions: since the start for Prometheus, and over the last minute for the monitor.
//!
//! Buckets are eight per doubling, from a quarter of a microsecond to a minute, so a reported quantile is at most one
//! eighth too high. A decision increments one bucket and a sum. Readers take differences: every few seconds what was
//! added since is stored as a slice, and the last minute is the slices of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::internals::Mutex;

/// Length of a slice.
pub(super) const SLICE: Duration = Duration::from_secs(5);
/// Period that quantiles cover.
pub(super) const WINDOW: Duration = Duration::from_secs(60);
const SLICES: usize = (WINDOW.as_secs() / SLICE.as_secs()) as usize;

/// Up to 2⁸ ns is one bucket, beyond 2³⁶ ns (69 s) another.
const SCALE: Scale = Scale { low_bits: 8, high_bits: 36, sub_bits: 3 };
const BUCKETS: usize = SCALE.buckets();

/// Buckets for Prometheus: every doubling from 2¹² ns (4 µs) to 2³⁴ ns (17 s).
const SHOWN_BITS: std::ops::RangeInclusive<u32> = 12..=34;
const NANOS: f64 = 1e9;

/// Latencies of the decisions of one policy. Fixed memory: some 12 KB.
pub(super) struct Latency {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    /// Maximum since the last slice.
    max: AtomicU64,
    aside: Mutex<Aside>,
}

/// Slices of the last minute.
struct Aside {
    /// Counts at the last slice.
    last: Box<[u64; BUCKETS]>,
    last_sum: u64,
    slices: VecDeque<Slice>,
}

#[derive(Default)]
struct Slice {
    /// `None` if nothing was recorded.
    counts: Option<Box<[u32]>>,
    sum: u64,
    max: u64,
}

/// Latencies of decisions over the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of decisions.
    pub n: u64,
    /// Mean.
    pub avg: Duration,
    /// Median.
    pub p50: Duration,
    /// 99th percentile.
    pub p99: Duration,
    /// Maximum.
    pub max: Duration,
}

impl Latency {
    pub(super) fn new() -> Self {
        Self {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
            aside: Mutex::new(Aside {
                last: Box::new([0; BUCKETS]),
                last_sum: 0,
                slices: VecDeque::with_capacity(SLICES),
            }),
        }
    }

    #[inline]
    pub(super) fn record(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[SCALE.bucket(nanos)].fetch_add(1, Relaxed);
        self.sum.fetch_add(nanos, Relaxed);
        // A new maximum is rare enough for a write.
        if nanos > self.max.load(Relaxed) {
            self.max.fetch_max(nanos, Relaxed);
        }
    }

    /// Stores what was added since the last slice. Drops the oldest slice.
    pub(super) fn cut(&self) {
        let mut aside = self.aside.lock();
        let slice = self.since(&aside, self.max.swap(0, Relaxed));
        if let Some(counts) = &slice.counts {
            for (last, count) in aside.last.iter_mut().zip(counts) {
                *last += u64::from(*count);
            }
        }
        aside.last_sum = aside.last_sum.wrapping_add(slice.sum);
        if aside.slices.len() == SLICES {
            aside.slices.pop_front();
        }
        aside.slices.push_back(slice);
    }

    fn since(&self, aside: &Aside, max: u64) -> Slice {
        let came = |at: usize| {
            let count = self.buckets[at].load(Relaxed) - aside.last[at];
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        let counts: Box<[u32]> = (0..BUCKETS).map(came).collect();
        let sum = self.sum.load(Relaxed).wrapping_sub(aside.last_sum);
        Slice { counts: counts.iter().any(|count| *count > 0).then_some(counts), sum, max }
    }

    /// Returns the summary of the last minute, to within a slice.
    pub(super) fn summary(&self) -> Summary {
        let aside = self.aside.lock();
        let open = self.since(&aside, self.max.load(Relaxed));
        let (mut counts, mut sum, mut max) = ([0_u64; BUCKETS], 0_u64, 0);
        for slice in aside.slices.iter().chain([&open]) {
            for (all, count) in counts.iter_mut().zip(slice.counts.iter().flatten()) {
                *all += u64::from(*count);
            }
            sum = sum.wrapping_add(slice.sum);
            max = max.max(slice.max);
        }
        let n = counts.iter().sum();
        if n == 0 {
            return Summary::default();
        }
        let quantile = |part: f64| Duration::from_nanos(SCALE.quantile(&counts, n, part).min(max));
        let (avg, max) = (Duration::from_nanos(sum / n), Duration::from_nanos(max));
        Summary { n, avg, p50: quantile(0.5), p99: quantile(0.99), max }
    }

    /// Returns the totals since the start, for Prometheus: the sum in seconds, the count, and the count up to each
    /// bound in seconds.
    pub(super) fn cumulative(&self) -> (f64, u64, Vec<(f64, u64)>) {
        let counts: Vec<u64> = self.buckets.iter().map(|count| count.load(Relaxed)).collect();
        let mut rest = counts.as_slice();
        let mut shown = Vec::with_capacity(SHOWN_BITS.count() + 1);
        for bits in SHOWN_BITS {
            // The first bucket ends at 2^LOW_BITS, and each doubling has eight.
            let upto = 1 + (bits - SCALE.low_bits) as usize * SCALE.subs() - (counts.len() - rest.len());
            let (these, later) = rest.split_at(upto);
            shown.push(((1_u64 << bits) as f64 / NANOS, these.iter().sum()));
            rest = later;
        }
        shown.push((f64::INFINITY, rest.iter().sum()));
        (self.sum.load(Relaxed) as f64 / NANOS, counts.iter().sum(), shown)
    }
}

/// Buckets of times: one up to 2^`low_bits` ns, one beyond 2^`high_bits` ns, and in between 2^`sub_bits` per doubling.
/// The bound of a bucket is at most one part in 2^`sub_bits` above a time in it. Bounds belong to the bucket below
/// them.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub low_bits: u32,
    pub high_bits: u32,
    pub sub_bits: u32,
}

#[doc(hidden)]
impl Scale {
    pub const fn buckets(self) -> usize {
        (self.high_bits - self.low_bits) as usize * self.subs() + 2
    }

    /// Returns the number of buckets per doubling.
    pub const fn subs(self) -> usize {
        1 << self.sub_bits
    }

    /// Returns the bucket of a time.
    #[inline]
    pub fn bucket(self, nanos: u64) -> usize {
        let below = nanos.saturating_sub(1);
        if below >> self.low_bits == 0 {
            return 0;
        }
        let bits = below.ilog2();
        if bits >= self.high_bits {
            return self.buckets() - 1;
        }
        let sub = (below >> (bits - self.sub_bits)) as usize & (self.subs() - 1);
        1 + (bits - self.low_bits) as usize * self.subs() + sub
    }

    /// Returns the maximum time of a bucket.
    pub fn bound(self, bucket: usize) -> u64 {
        match bucket {
            0 => 1 << self.low_bits,
            _ if bucket == self.buckets() - 1 => u64::MAX,
            _ => {
                let (octave, sub) = ((bucket - 1) / self.subs(), (bucket - 1) % self.subs());
                ((self.subs() + sub + 1) as u64) << (octave as u32 + self.low_bits - self.sub_bits)
            }
        }
    }

    /// Returns the time that this fraction of `n` times in all buckets did not exceed.
    pub fn quantile(self, counts: &[u64], n: u64, part: f64) -> u64 {
        let rank = ((n as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        let at = counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        at.map_or(u64::MAX, |at| self.bound(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket_and_one_more_to_the_next() {
        for scale in [SCALE, Scale { sub_bits: 5, ..SCALE }] {
            let (bucket, bound) = (|nanos| scale.bucket(nanos), |at| scale.bound(at));
            for at in 0..scale.buckets() - 1 {
                assert_eq!((bucket(bound(at)), bucket(bound(at) + 1)), (at, at + 1));
            }
            assert_eq!((bucket(0), bucket(u64::MAX)), (0, scale.buckets() - 1));
        }
    }

    #[test]
    fn quantiles_are_at_most_an_eighth_too_high_and_never_too_low() {
        let latency = Latency::new();
        let times: Vec<u64> = (1..=10_000).map(|at| at * 1_000).collect();
        times.iter().for_each(|nanos| latency.record(Duration::from_nanos(*nanos)));
        let read = latency.summary();
        assert_eq!((read.n, read.max), (10_000, Duration::from_millis(10)));
        assert_eq!(read.avg, Duration::from_nanos(5_000_500));
        for (told, truth) in [(read.p50, 5_000_000), (read.p99, 9_900_000)] {
            assert!((truth..=truth * 9 / 8).contains(&(told.as_nanos() as u64)), "{told:?}");
        }
    }

    #[test]
    fn what_is_older_than_a_minute_is_forgotten_and_the_totals_are_not() {
        let latency = Latency::new();
        latency.record(Duration::from_secs(1));
        for _ in 0..SLICES {
            latency.cut();
            assert_eq!(latency.summary().n, 1);
        }
        latency.cut();
        assert_eq!(latency.summary(), Summary::default());
        latency.record(Duration::from_micros(9));
        assert_eq!(latency.summary().max, Duration::from_micros(9));
        assert_eq!(latency.cumulative().1, 2);
    }

    #[test]
    fn prometheus_is_shown_each_time_under_the_first_bound_that_it_does_not_exceed() {
        let latency = Latency::new();
        for nanos in [1, 4_096, 4_097, 8_192, 1 << 34, (1 << 34) + 1] {
            latency.record(Duration::from_nanos(nanos));
        }
        let (sum, n, shown) = latency.cumulative();
        assert_eq!((n, shown.len()), (6, 24));
        assert_eq!(shown[0], (4_096.0 / NANOS, 2));
        assert_eq!(shown[1], (8_192.0 / NANOS, 2));
        assert_eq!(shown[22], ((1_u64 << 34) as f64 / NANOS, 1));
        assert_eq!(shown[23], (f64::INFINITY, 1));
        assert!((sum - 34.359_754_754).abs() < 1e-6, "{sum}");
    }
}
