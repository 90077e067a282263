//! A latency histogram with 32 buckets per doubling, so that a reported time is at most 3.2 % too high.

use std::time::Duration;

use throttlekit_server::internals::telemetry::Scale;

/// Up to 2⁴² ns, over an hour.
const SCALE: Scale = Scale { low_bits: 8, high_bits: 42, sub_bits: 5 };

/// A histogram of times.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Box<[u64]>,
    sum: u128,
    n: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; SCALE.buckets()].into(), sum: 0, n: 0, max: 0 }
    }
}

impl Histogram {
    pub(super) fn record(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts[SCALE.bucket(nanos)] += 1;
        self.sum += u128::from(nanos);
        self.n += 1;
        self.max = self.max.max(nanos);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.sum += other.sum;
        self.n += other.n;
        self.max = self.max.max(other.max);
    }

    pub(super) fn n(&self) -> u64 {
        self.n
    }

    pub(super) fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    pub(super) fn mean(&self) -> Duration {
        Duration::from_nanos((self.sum / u128::from(self.n.max(1))) as u64)
    }

    /// Returns the time that this fraction of them did not exceed.
    pub(super) fn quantile(&self, part: f64) -> Duration {
        Duration::from_nanos(SCALE.quantile(&self.counts, self.n, part).min(self.max))
    }

    /// Returns the number of times in each doubling, from the first to the last that is not empty.
    pub(super) fn doublings(&self) -> Vec<(Duration, u64)> {
        let (first, rest) = self.counts.split_at(1);
        let doublings = std::iter::once(first).chain(rest.chunks(SCALE.subs())).enumerate();
        let mut all: Vec<(Duration, u64)> = Vec::new();
        for (doubling, counts) in doublings {
            let count = counts.iter().sum();
            if count > 0 || !all.is_empty() {
                let last = SCALE.bound(doubling * SCALE.subs());
                all.push((Duration::from_nanos(last), count));
            }
        }
        while all.last().is_some_and(|(_, count)| *count == 0) {
            all.pop();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_at_most_one_in_32_too_high_and_never_too_low() {
        let mut times = Histogram::default();
        (1..=100_000).for_each(|at| times.record(Duration::from_nanos(at * 977)));
        for part in [0.5, 0.9, 0.99, 0.999] {
            let truth = (part * 100_000.0) as u64 * 977;
            let told = times.quantile(part).as_nanos() as u64;
            assert!((truth..=truth + truth / 32).contains(&told), "{part}: {told} for {truth}");
        }
        assert_eq!(times.quantile(1.0), Duration::from_nanos(97_700_000));
        assert_eq!(times.doublings().iter().map(|(_, count)| count).sum::<u64>(), 100_000);
    }

    #[test]
    fn nothing_has_no_quantile_and_no_doublings() {
        let empty = Histogram::default();
        assert_eq!(
            (empty.quantile(0.5), empty.mean(), empty.doublings().len()),
            (Duration::ZERO, Duration::ZERO, 0)
        );
    }
}
