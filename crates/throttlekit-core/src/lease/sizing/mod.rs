//! Learned lease sizes.
//!
//! Small batches cost round trips, large ones strand units that others could have spent. For a demand of D units in
//! a window and batches of b that is the trade of the economic order quantity:
//!
//! > cost(b) = K·D/b + s·b/2, least at b* = √(2·K·D/s)
//!
//! with K the cost of a round trip and s that of a stranded unit. D is not known beforehand and spans orders of
//! magnitude, so a [`Sizer`] learns ln b. A [`PredictiveSizer`] also uses a forecast, as far as it has been right.
//!
//! The size is only a hint. The authority grants what is available, so no batch, however wrong, admits more.

mod predictive;

use core::fmt;

use crate::learn::AdaGrad;
pub use predictive::PredictiveSizer;

/// The cost of a window with this demand, leased in batches of this size, which is above zero.
pub fn eoq_cost(batch: f64, demand: f64, order_cost: f64, strand_penalty: f64) -> f64 {
    order_cost * demand / batch + strand_penalty * batch / 2.0
}

/// The batch at which a window of this demand costs least: √(2·K·D/s).
pub fn eoq_optimum(demand: f64, order_cost: f64, strand_penalty: f64) -> f64 {
    libm::sqrt(2.0 * order_cost * demand / strand_penalty)
}

/// Costs that a [`Sizer`] weighs, and the bounds of its batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizerOptions {
    /// Cost of a round trip to the authority, from 10⁻⁹ to 10⁹. Default: 1.
    pub order_cost: f64,
    /// Cost of a leased unit that stays unspent, from 10⁻⁹ to 10⁹. Default: the cost of a round trip, since a unit
    /// stranded here may be a request denied elsewhere. 100 requests per window then make batches of 14.
    pub strand_penalty: f64,
    /// No batch is smaller; at least 1.
    pub batch_min: u64,
    /// No batch is larger; at least the smallest.
    pub batch_max: u64,
    /// The batch before anything is known of the demand, clamped to these bounds.
    pub batch_start: u64,
}

impl Default for SizerOptions {
    fn default() -> Self {
        Self { order_cost: 1.0, strand_penalty: 1.0, batch_min: 1, batch_max: 1_000_000, batch_start: 16 }
    }
}

/// Invalid sizer options.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SizingError {
    /// A cost is not between 10⁻⁹ and 10⁹.
    Cost(f64),
    /// The smallest batch is zero, or above the largest.
    Batches {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
}

impl fmt::Display for SizingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cost(cost) => {
                write!(f, "invalid cost {cost} of a round trip or a stranded unit: expected 1e-9 to 1e9")
            }
            Self::Batches { min, max } => {
                write!(f, "invalid batch range {min} to {max}: expected at least 1, with the minimum first")
            }
        }
    }
}

impl core::error::Error for SizingError {}

impl SizerOptions {
    fn check(&self) -> Result<(), SizingError> {
        let costs = [self.order_cost, self.strand_penalty];
        if let Some(cost) = costs.into_iter().find(|cost| !(1e-9..=1e9).contains(cost)) {
            return Err(SizingError::Cost(cost));
        }
        let (min, max) = (self.batch_min, self.batch_max);
        if min == 0 || min > max { Err(SizingError::Batches { min, max }) } else { Ok(()) }
    }

    /// Returns the bounds of the logarithm of a batch.
    fn interval(&self) -> (f64, f64) {
        (libm::log(self.batch_min as f64), libm::log(self.batch_max as f64))
    }

    /// The logarithm of the best batch for this demand, within the interval.
    fn best_aim(&self, demand: f64) -> f64 {
        let (low, high) = self.interval();
        libm::log(eoq_optimum(demand, self.order_cost, self.strand_penalty)).clamp(low, high)
    }

    fn cost(&self, aim: f64, demand: f64) -> f64 {
        eoq_cost(libm::exp(aim), demand, self.order_cost, self.strand_penalty)
    }

    /// Returns the derivative of the cost with respect to the logarithm of the batch.
    fn gradient(&self, aim: f64, demand: f64) -> f64 {
        let batch = libm::exp(aim);
        self.strand_penalty * batch / 2.0 - self.order_cost * demand / batch
    }

    /// The whole batch for an aim. Rounds where both neighbours cost the same, which is at their geometric mean.
    fn batch(&self, aim: f64) -> u64 {
        let batch = libm::exp(aim);
        let below = libm::floor(batch);
        let rounded = if batch * batch < below * (below + 1.0) { below } else { below + 1.0 };
        (rounded as u64).clamp(self.batch_min, self.batch_max)
    }
}

/// The longest step, in e-folds. [`AdaGrad`] takes none that is longer than its scale.
const STEP_SCALE: f64 = 1.0;
/// Number of consecutive windows pulling the same way that may indicate that the demand has moved.
const RUN: u32 = 16;

/// Learns the size of a lease from the demand of each window: [`AdaGrad`] on ln b.
///
/// It restarts after its first window, and after 16 or more in a row that pulled the same way, once it has paid √E more
/// for them than one batch for all of them would have cost, where E is the energy of its steps: not moving has then
/// cost about as much as a restart may. It continues at that batch, with steps as long as its cost suggests. So it
/// follows a demand that moves, does not lag behind one that jumped, and is not moved by one that is merely noisy. It
/// restarts for the n-th time in window (n−1)² at the earliest.
///
/// Against the best fixed batch u in hindsight, over any T windows, before batches are rounded to whole units:
///
/// > regret ≤ (D²/2 + 1) · √(R · (Σ f_t² + R·ε))
///
/// with f_t the cost paid in window t, D the farthest that ln b was from ln u (at most ln(max/min)), R one more than
/// the number of restarts, and ε = 10⁻⁸. R is a few on stationary demand, which makes the regret O(√T); for any
/// adversary, R ≤ 2 + √T, which makes it O(T^¾). Rounding adds at most 6.1 % of a window's cost for batches of one, and
/// 1/8b² of it for batches of b.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizer {
    options: SizerOptions,
    point: AdaGrad,
    run: Run,
    windows: u64,
    restarts: u64,
}

/// The latest windows that pulled the same way.
#[derive(Clone, Debug, Default, PartialEq)]
struct Run {
    up: bool,
    windows: u32,
    demand: f64,
    paid: f64,
}

impl Sizer {
    /// Creates a sizer that has observed nothing yet.
    pub fn new(options: SizerOptions) -> Result<Self, SizingError> {
        options.check()?;
        let (low, high) = options.interval();
        let point = AdaGrad::new(low, high, libm::log(options.batch_start.max(1) as f64), STEP_SCALE);
        Ok(Self { options, point, run: Run::default(), windows: 0, restarts: 0 })
    }

    /// Returns the number of units to request at once.
    pub fn batch(&self) -> u64 {
        self.options.batch(self.point.at())
    }

    /// The logarithm of the batch before it is rounded, which is what the bound on regret is about.
    pub fn aim(&self) -> f64 {
        self.point.at()
    }

    /// Returns the number of restarts.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Records the units that were spent in one window, or in one hold time of a lease without windows.
    pub fn observe(&mut self, demand: u64) {
        let demand = demand as f64;
        let gradient = self.options.gradient(self.point.at(), demand);
        self.windows = self.windows.saturating_add(1);
        self.run.extend(gradient < 0.0, demand, self.options.cost(self.point.at(), demand));
        if self.has_moved() { self.restart() } else { self.point.step(gradient) }
    }

    fn has_moved(&self) -> bool {
        let may = self.restarts.saturating_mul(self.restarts) <= self.windows;
        self.windows == 1
            || (self.run.windows >= RUN && may && self.lost() >= libm::sqrt(self.point.energy()))
    }

    /// Returns the cost of the run beyond that of the best single batch for it.
    fn lost(&self) -> f64 {
        let mean = self.run.mean();
        let best = self.options.cost(self.options.best_aim(mean), mean);
        self.run.paid - best * f64::from(self.run.windows)
    }

    /// At the best batch b* of a demand the second derivative of the cost is the cost itself, √(2KDs). Its square as
    /// energy makes the first steps those of Newton's method.
    fn restart(&mut self) {
        let demand = self.run.mean();
        let energy = 2.0 * self.options.order_cost * self.options.strand_penalty * demand;
        self.point.restart(self.options.best_aim(demand), energy);
        self.run = Run::default();
        self.restarts += 1;
    }
}

impl Default for Sizer {
    fn default() -> Self {
        Self::new(SizerOptions::default()).expect("the default options are valid")
    }
}

impl Run {
    fn extend(&mut self, up: bool, demand: f64, cost: f64) {
        if up != self.up {
            *self = Self { up, ..Self::default() };
        }
        self.windows = self.windows.saturating_add(1);
        self.demand += demand;
        self.paid += cost;
    }

    fn mean(&self) -> f64 {
        self.demand / f64::from(self.windows.max(1))
    }
}

#[cfg(test)]
mod tests;
