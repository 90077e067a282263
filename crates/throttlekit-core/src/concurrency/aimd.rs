//! Additive increase while nothing queues, multiplicative decrease when something does.

use super::round::Seen;
use super::windowed_min::WindowedMin;

/// Number of rounds over which the no-load latency is the minimum.
const ROUNDS: usize = 8;

/// The additive rule: needs nothing but a threshold, and is slow to grow.
#[derive(Clone, Debug)]
pub(super) struct Aimd {
    backoff: f64,
    tolerance: f64,
    no_load: WindowedMin<ROUNDS>,
}

impl Aimd {
    pub(super) fn new(backoff: f64, tolerance: f64) -> Self {
        Self { backoff, tolerance, no_load: WindowedMin::new() }
    }

    pub(super) fn recalibrate(&mut self) {
        self.no_load.clear();
    }

    /// Returns the next limit. Twice the standard error above the tolerance is a queue; noise is not.
    pub(super) fn next(&mut self, limit: f64, seen: Seen) -> f64 {
        if let Some(latency) = seen.latency {
            self.no_load.push(latency * (1.0 + seen.error));
        }
        let (Some(latency), Some(no_load)) = (seen.latency, self.no_load.min()) else {
            return limit * self.backoff;
        };
        let queues = latency > no_load * (1.0 + self.tolerance + 2.0 * seen.error);
        if seen.dropped > 0.0 || queues {
            (limit * self.backoff).min(limit - 1.0)
        } else if seen.under_used {
            limit
        } else {
            limit + 1.0
        }
    }
}
