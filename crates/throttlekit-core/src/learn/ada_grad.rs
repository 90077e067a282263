//! Gradient descent whose step shrinks with the gradients seen.

/// Keeps the first step finite when the first gradient is next to nothing.
const EPSILON: f64 = 1e-8;

/// Projected AdaGrad in one dimension, over an interval.
///
/// After the gradients g₁ … g_t the step is `step_scale · g_t / √E`, with the energy E = ε + Σ gᵢ². So no step is
/// longer than `step_scale`: a step in the logarithm with a scale of 1 is at most one e-fold, without a cap that would
/// invalidate the bound. Against the best fixed point u of the interval, for convex losses,
/// > regret ≤ (D²/2η + η) · √E,
///
/// where η is the scale of the steps and D the farthest that any point played was from u, at most the length of the
/// interval. The bound holds for any gradients and needs no knowledge of their size.
///
/// ```
/// use throttlekit_core::learn::AdaGrad;
///
/// let mut point = AdaGrad::new(0.0, 10.0, 9.0, 1.0);
/// for _ in 0..1_000 {
///     point.step(2.0 * (point.at() - 4.0)); // the gradient of (x − 4)²
/// }
/// assert!((point.at() - 4.0).abs() < 0.01);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct AdaGrad {
    low: f64,
    high: f64,
    at: f64,
    step_scale: f64,
    energy: f64,
}

impl AdaGrad {
    /// Creates a learner over the interval from `low` to `high`, both finite, that begins at `start`, clamped to it.
    pub fn new(low: f64, high: f64, start: f64, step_scale: f64) -> Self {
        let high = high.max(low);
        Self { low, high, at: start.max(low).min(high), step_scale, energy: EPSILON }
    }

    /// The point to play next.
    pub fn at(&self) -> f64 {
        self.at
    }

    /// E: the weight of the gradients since the last restart, plus the energy passed to that restart.
    pub fn energy(&self) -> f64 {
        self.energy
    }

    /// Moves against the gradient of the loss at [`at`](Self::at). A gradient whose square is not finite is ignored.
    pub fn step(&mut self, gradient: f64) {
        let energy = self.energy + gradient * gradient;
        if !energy.is_finite() {
            return;
        }
        self.energy = energy;
        let next = self.at - self.step_scale * gradient / libm::sqrt(energy);
        self.at = next.clamp(self.low, self.high);
    }

    /// Restarts at `start`, as if gradients of this `energy` had been seen: the larger, the more careful the first
    /// steps. What was learned before is forgotten.
    pub fn restart(&mut self, start: f64, energy: f64) {
        let fresh = Self::new(self.low, self.high, start, self.step_scale);
        *self = Self { energy: EPSILON + energy.clamp(0.0, f64::MAX / 2.0), ..fresh };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_step_is_longer_than_its_scale_and_none_leaves_the_interval() {
        let mut point = AdaGrad::new(-3.0, 3.0, 0.0, 1.0);
        for gradient in [1e150, -1e-3, 1e-30, -1e150, -5.0, 0.0, 7.0] {
            let before = point.at();
            point.step(gradient);
            assert!((point.at() - before).abs() <= 1.0 && point.at().abs() <= 3.0, "{gradient}: {point:?}");
        }
    }

    #[test]
    fn gradients_that_are_no_numbers_change_nothing() {
        let mut point = AdaGrad::new(0.0, 1.0, 0.25, 1.0);
        point.step(0.5);
        let before = point.clone();
        for gradient in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX] {
            point.step(gradient);
            assert_eq!(point, before, "{gradient}");
        }
    }

    #[test]
    fn steps_shrink_under_noise_and_a_restart_lengthens_them() {
        let mut point = AdaGrad::new(-10.0, 10.0, 0.0, 1.0);
        for turn in 0..10_000 {
            point.step(if turn % 2 == 0 { 1.0 } else { -1.0 });
        }
        let settled = point.at();
        point.step(1.0);
        assert!((point.at() - settled).abs() < 0.011);
        point.restart(2.0, 0.0);
        point.step(1.0);
        assert!((point.at() - 1.0).abs() < 1e-6);
    }
}
