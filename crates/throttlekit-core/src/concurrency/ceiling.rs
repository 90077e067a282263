//! The bounds within which a ceiling is inferred, and the rule.

use core::time::Duration;

/// Bounds and rule by which a concurrency ceiling is inferred. Default: from 4 to 512 by the gradient.
///
/// ```
/// use throttlekit_core::concurrency::Ceiling;
///
/// let ceiling = Ceiling::between(4, 512).starting_at(32);
/// # let _ = ceiling;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    pub(super) least: u32,
    pub(super) most: u32,
    pub(super) initial: u32,
    pub(super) rule: Rule,
    pub(super) tolerance: f64,
    pub(super) recalibrate_every: Option<Duration>,
}

/// Rule by which the ceiling moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    Gradient,
    Aimd { backoff: f64 },
}

/// Increase above the no-load latency that is not yet a queue.
const TOLERANCE: f64 = 0.1;

impl Ceiling {
    /// Creates a ceiling between these bounds, which starts at the least.
    pub fn between(least: u32, most: u32) -> Self {
        let least = least.max(1);
        Self {
            least,
            most: most.max(least),
            initial: least,
            rule: Rule::Gradient,
            tolerance: TOLERANCE,
            recalibrate_every: None,
        }
    }

    /// Returns the initial ceiling.
    pub fn initial(&self) -> u32 {
        self.initial
    }

    /// Returns the maximum ceiling.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Sets the initial ceiling, clamped to the bounds.
    pub fn starting_at(self, initial: u32) -> Self {
        Self { initial: initial.clamp(self.least, self.most), ..self }
    }

    /// Adds one per round while nothing queues, and multiplies by `backoff`, from 0.5 to 0.99, when something does.
    pub fn aimd(self, backoff: f64) -> Self {
        let backoff = if backoff.is_finite() { backoff.clamp(0.5, 0.99) } else { 0.9 };
        Self { rule: Rule::Aimd { backoff }, ..self }
    }

    /// Sets how far latency may rise above the no-load latency before that counts as a queue: 0.1 is a tenth. From 0.02
    /// to 10; the ceiling settles about this far above the best.
    pub fn tolerance(self, tolerance: f64) -> Self {
        let tolerance = if tolerance.is_finite() { tolerance.clamp(0.02, 10.0) } else { TOLERANCE };
        Self { tolerance, ..self }
    }

    /// Resets the no-load latency at this interval. The gradient then remeasures it in its next dip, a tenth below the
    /// best for a round, so throughput hardly changes. Not needed where latency changes by steps: they are detected.
    pub fn recalibrate_every(self, period: Duration) -> Self {
        Self { recalibrate_every: Some(period), ..self }
    }
}

impl Default for Ceiling {
    fn default() -> Self {
        Self::between(4, 512)
    }
}
