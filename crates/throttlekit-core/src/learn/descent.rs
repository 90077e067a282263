//! Gradient descent for losses whose slope has a known bound.

/// Projected gradient descent in one dimension, over an interval.
///
/// The t-th step is D·g/(G·√t) against the gradient g, where D is the length of the interval and G the steepest that
/// a loss may be. Against the best fixed point of the interval, for any convex losses and after any number T of them,
///
/// > regret ≤ (3/2) · D · G · √T.
///
/// ```
/// use throttlekit_core::learn::Descent;
///
/// let mut point = Descent::new(0.0, 10.0, 1.0);
/// for _ in 0..10_000 {
///     point.step(if point.at() > 4.0 { 1.0 } else { -1.0 }); // the slope of |x − 4|
/// }
/// assert!((point.at() - 4.0).abs() < 0.2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Descent {
    low: f64,
    high: f64,
    steepest: f64,
    at: f64,
    steps: u64,
}

impl Descent {
    /// A learner over the interval from `low` to `high`, both finite, that begins in the middle of it. No slope is
    /// steeper than `steepest`, which is above zero.
    pub fn new(low: f64, high: f64, steepest: f64) -> Self {
        let high = high.max(low);
        Self { low, high, steepest, at: low + (high - low) / 2.0, steps: 0 }
    }

    /// The point to play next.
    pub fn at(&self) -> f64 {
        self.at
    }

    /// Returns the number of gradients it has followed.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Moves against the gradient of the loss at [`at`](Self::at). NaN is ignored; a gradient that is too steep counts
    /// as the steepest.
    pub fn step(&mut self, gradient: f64) {
        if gradient.is_nan() {
            return;
        }
        self.steps = self.steps.saturating_add(1);
        let slope = (gradient / self.steepest).clamp(-1.0, 1.0);
        let next = self.at - (self.high - self.low) * slope / libm::sqrt(self.steps as f64);
        self.at = next.clamp(self.low, self.high);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_step_leaves_the_interval_and_the_first_may_cross_it() {
        let mut point = Descent::new(-3.0, 5.0, 2.0);
        assert!((point.at() - 1.0).abs() < 1e-12);
        for (gradient, at) in [(-2.0, 5.0), (f64::INFINITY, 5.0 - 8.0 / libm::sqrt(2.0)), (1e300, -3.0)] {
            point.step(gradient);
            assert!((point.at() - at).abs() < 1e-12, "{gradient}: {point:?}");
        }
    }

    #[test]
    fn steps_shrink_with_the_root_of_their_number() {
        let mut point = Descent::new(0.0, 100.0, 1.0);
        for turn in 0..10_000 {
            point.step(if turn % 2 == 0 { 1.0 } else { -1.0 });
        }
        let before = point.at();
        point.step(if before > 50.0 { 1.0 } else { -1.0 });
        assert!(((point.at() - before).abs() - 100.0 / libm::sqrt(10_001.0)).abs() < 1e-9);
    }

    #[test]
    fn a_gradient_that_is_no_number_changes_nothing() {
        let mut point = Descent::new(0.0, 1.0, 1.0);
        point.step(0.5);
        let before = point.clone();
        point.step(f64::NAN);
        assert_eq!(point, before);
    }
}
