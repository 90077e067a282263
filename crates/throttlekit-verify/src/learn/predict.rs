//! The cost of a sizer with forecasts: good ones, and bad ones.

use throttlekit_core::lease::{Sizer, SizerOptions, eoq_cost, eoq_optimum};

use super::{Check, Demand, Family, Predicts, ensure};
use throttlekit_conformance::Dice;

/// The maximum cost with perfect forecasts, as a multiple of that of a clairvoyant sizer.
pub const CLAIRVOYANT_BAR: f64 = 1.05;
/// The maximum cost with bad forecasts, as a multiple of that of the sizer without them.
pub const ROBUST_BAR: f64 = 1.1;

/// The generator of forecasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "`forecast` says it")]
pub enum Hints {
    Perfect,
    Zero,
    Huge,
    Opposite,
    Random,
    Flattering,
}

/// All that are not perfect.
pub const BAD_HINTS: [Hints; 5] =
    [Hints::Zero, Hints::Huge, Hints::Opposite, Hints::Random, Hints::Flattering];

/// The costs of three sizers for the same sequence.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// The generator of the forecasts.
    pub hints: Hints,
    /// The sizer under test.
    pub paid: f64,
    /// The learner alone.
    pub robust: f64,
    /// A sizer that knows each demand.
    pub clairvoyant: f64,
    /// The maximum by which following the forecast cost more than the learner alone in one window.
    pub lesson: f64,
}

impl Comparison {
    /// Returns the cost relative to its reference. No learner can foresee that a forecast which was always
    /// right fails in the costliest window of all, so where forecasts flatter, that cost may be paid once.
    pub fn ratio(&self) -> f64 {
        match self.hints {
            Hints::Perfect => self.paid / self.clairvoyant,
            Hints::Flattering => (self.paid - self.lesson) / self.robust,
            _ => self.paid / self.robust,
        }
    }

    /// Checks that the ratio is within its threshold.
    pub fn check(&self) -> Check {
        let bar = if self.hints == Hints::Perfect { CLAIRVOYANT_BAR } else { ROBUST_BAR };
        let ratio = self.ratio();
        ensure(ratio <= bar, || format!("{:?} forecasts: {ratio:.3} where {bar} is allowed", self.hints))
    }
}

/// Runs a sequence with forecasts on a sizer, on the learner alone and on a clairvoyant one.
pub fn compare(
    sizer: &mut impl Predicts,
    options: SizerOptions,
    family: Family,
    hints: Hints,
    seed: u64,
    windows: u64,
) -> Comparison {
    let mut demand = Demand::new(family, seed, windows);
    let mut dice = Dice::new(!seed);
    let mut alone = Sizer::new(options).expect("experiments use valid options");
    let cost = |batch: u64, units: u64| {
        eoq_cost(batch as f64, units as f64, options.order_cost, options.strand_penalty)
    };
    let mut sums = Comparison { hints, paid: 0.0, robust: 0.0, clairvoyant: 0.0, lesson: 0.0 };
    for _ in 0..windows {
        let units = demand.next(alone.batch());
        let hint = forecast(hints, units, &mut dice);
        sums.paid += cost(sizer.batch(hint), units);
        sums.robust += cost(alone.batch(), units);
        sums.clairvoyant += cost(best_batch(&options, units), units);
        let excess = cost(best_batch(&options, hint), units) - cost(alone.batch(), units);
        sums.lesson = sums.lesson.max(excess);
        sizer.observe(hint, units);
        alone.observe(units);
    }
    sums
}

fn forecast(hints: Hints, units: u64, dice: &mut Dice) -> u64 {
    match hints {
        Hints::Perfect => units,
        Hints::Zero => 0,
        Hints::Huge => 1_000_000_000_000,
        Hints::Opposite => 25_000_000 / units.max(1),
        Hints::Random => dice.any_size(1 << 40),
        // Right about the many windows that cost little, wrong about the few that cost much.
        Hints::Flattering => {
            if units > 40_000 {
                0
            } else {
                units
            }
        }
    }
}

/// Returns the whole batch at which a window of this demand costs least.
fn best_batch(options: &SizerOptions, units: u64) -> u64 {
    let best = eoq_optimum(units as f64, options.order_cost, options.strand_penalty).floor();
    let batch = if options.order_cost * units as f64 * 2.0 < options.strand_penalty * best * (best + 1.0) {
        best
    } else {
        best + 1.0
    };
    (batch as u64).clamp(options.batch_min, options.batch_max)
}
