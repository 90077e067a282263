//! Detects whether latencies vary by the call more than by the load.

/// Raises the threshold by `DOUBT_CALLS / calls`: a long call or two among a few dozen are outliers.
const DOUBT_CALLS: f64 = 24.0;
/// Largest number of calls averaged: a kind of call that is one in a hundred shows in it twenty times.
const CALLS_MAX: f64 = 2_048.0;
/// The mean is of fewer, since it moves with the load.
const MEAN_CALLS_MAX: f64 = 256.0;
/// Fewer calls are no evidence of anything.
const CALLS_MIN: f64 = 32.0;
/// The squared coefficient of variation above which latencies vary, and below which they no longer do. A constant wait
/// in a queue makes every latency longer and the variation smaller, hence the distance between the two.
const VARY_ABOVE: f64 = 0.4;
const STEADY_BELOW: f64 = 0.15;
const _: () = assert!(STEADY_BELOW < VARY_ABOVE);
/// Number of consecutive calls for which it must have been below: long calls of a rare kind end long after short ones.
const STEADY_CALLS: u32 = 4_096;

/// The squared coefficient of variation of latencies, from the differences of successive calls.
///
/// A deviation from the mean would also be large after a step, when old and new latencies share one mean. Successive
/// calls differ by a step only once (von Neumann's estimator).
#[derive(Clone, Debug, Default)]
pub(super) struct Variation {
    calls: f64,
    last: f64,
    mean: f64,
    /// Half of the squared difference of successive latencies, on average.
    variance: f64,
    varies: bool,
    steady_calls: u32,
}

impl Variation {
    /// Records a latency. Returns whether latencies vary, relative to the latency `alone` if that is known: a wait that
    /// all have in common makes them no more alike.
    pub(super) fn add(&mut self, latency: f64, alone: Option<f64>) -> bool {
        if self.calls == 0.0 {
            self.last = latency;
        }
        if self.calls < CALLS_MAX {
            self.calls += 1.0;
        }
        let apart = latency - self.last;
        self.last = latency;
        self.mean += (latency - self.mean) / self.calls.min(MEAN_CALLS_MAX);
        self.variance += (apart * apart / 2.0 - self.variance) / self.calls;
        let usual = alone.map_or(self.mean, |alone| alone.min(self.mean));
        let square = usual * usual;
        let doubt = 1.0 + DOUBT_CALLS / self.calls;
        let above = self.variance > VARY_ABOVE * doubt * square;
        let below = self.variance < STEADY_BELOW * square;
        self.steady_calls = if below { self.steady_calls.saturating_add(1) } else { 0 };
        if self.varies {
            self.varies = self.steady_calls < STEADY_CALLS;
        } else {
            self.varies = self.calls >= CALLS_MIN && above;
        }
        self.varies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(latencies: impl Iterator<Item = f64>) -> bool {
        let mut variation = Variation::default();
        latencies.map(|latency| variation.add(latency, None)).last() == Some(true)
    }

    #[test]
    fn a_step_is_no_variation() {
        assert!(!after((0..200).map(|_| 1.0).chain((0..200).map(|_| 4.0))));
    }

    #[test]
    fn one_long_call_in_fifty_is_variation() {
        assert!(after((0..600).map(|call| if call % 50 == 49 { 36.0 } else { 0.28 })));
    }

    #[test]
    fn variation_is_over_after_many_calls_that_take_the_same() {
        let varied = || (0..600).map(|call| if call % 10 == 9 { 7.0 } else { 0.3 });
        assert!(after(varied().chain((0..4_000).map(|_| 1.0))));
        assert!(!after(varied().chain((0..16_000).map(|_| 1.0))));
    }

    #[test]
    fn three_tenths_of_the_mean_are_no_variation() {
        assert!(!after((0..600).map(|call| 1.0 + 0.3 * f64::from(call % 3 - 1))));
    }
}
