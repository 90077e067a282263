//! Learners with a seeded bug, to show that each check can fail.

use throttlekit_core::learn::{AdaGrad, Hedge};
use throttlekit_core::lease::{PredictiveSizer, Sizer, SizerOptions, eoq_cost, eoq_optimum};

/// Sizes a lease from past demand.
pub trait Sizes {
    /// Returns the logarithm of the batch before rounding.
    fn aim(&self) -> f64;
    /// Returns the current batch.
    fn batch(&self) -> u64;
    /// Returns the number of restarts.
    fn restarts(&self) -> u64;
    /// Records the demand of a window.
    fn observe(&mut self, demand: u64);
}

/// Sizes a lease from past demand and a forecast.
pub trait Predicts {
    /// Returns the current batch for this expected demand.
    fn batch(&self, hint: u64) -> u64;
    /// Records the demand of a window, and the expected one.
    fn observe(&mut self, hint: u64, demand: u64);
}

impl Sizes for Sizer {
    fn aim(&self) -> f64 {
        Self::aim(self)
    }
    fn batch(&self) -> u64 {
        Self::batch(self)
    }
    fn restarts(&self) -> u64 {
        Self::restarts(self)
    }
    fn observe(&mut self, demand: u64) {
        Self::observe(self, demand);
    }
}

impl Predicts for PredictiveSizer {
    fn batch(&self, hint: u64) -> u64 {
        Self::batch(self, hint)
    }
    fn observe(&mut self, hint: u64, demand: u64) {
        Self::observe(self, hint, demand);
    }
}

throttlekit_conformance::bugs! {
    /// A bug of a [`SeededSizer`].
    pub enum SizerBug {
        StrandingDropped: "The cost of stranded units is left out of the gradient.",
        TripsDropped: "The cost of fetches is left out of the gradient.",
        SignReversed: "The gradient has the wrong sign.",
        NeverSettles: "The step size never shrinks.",
        NeverMoves: "The batch never changes.",
        ChasesTheLast: "The batch is the best one for the last window.",
        Unclamped: "The batch is not clamped to its bounds.",
    }
}

/// A sizer with one bug.
#[derive(Clone, Debug)]
pub struct SeededSizer {
    bug: SizerBug,
    options: SizerOptions,
    point: AdaGrad,
}

impl SeededSizer {
    /// Creates a sizer with this bug.
    pub fn new(bug: SizerBug, options: SizerOptions) -> Self {
        let [low, high, start] =
            [options.batch_min, options.batch_max, options.batch_start].map(|b| (b as f64).ln());
        Self { bug, options, point: AdaGrad::new(low, high, start, 1.0) }
    }

    fn gradient(&self, demand: f64) -> f64 {
        let batch = self.point.at().exp();
        let trips = -self.options.order_cost * demand / batch;
        let stranding = self.options.strand_penalty * batch / 2.0;
        match self.bug {
            SizerBug::StrandingDropped => trips,
            SizerBug::TripsDropped => stranding,
            SizerBug::SignReversed => -(trips + stranding),
            SizerBug::NeverMoves => 0.0,
            _ => trips + stranding,
        }
    }
}

impl Sizes for SeededSizer {
    fn aim(&self) -> f64 {
        self.point.at()
    }

    fn batch(&self) -> u64 {
        let batch = self.point.at().exp().round() as u64;
        if self.bug == SizerBug::Unclamped {
            batch * 2
        } else {
            batch.clamp(self.options.batch_min, self.options.batch_max)
        }
    }

    fn restarts(&self) -> u64 {
        0
    }

    fn observe(&mut self, demand: u64) {
        let gradient = self.gradient(demand as f64);
        match self.bug {
            SizerBug::NeverSettles => self.point.restart(self.point.at(), 0.0),
            SizerBug::ChasesTheLast => {
                let best = eoq_optimum(demand as f64, self.options.order_cost, self.options.strand_penalty);
                return self.point.restart(best.ln(), 0.0);
            }
            _ => {}
        }
        self.point.step(gradient);
    }
}

throttlekit_conformance::bugs! {
    /// A bug of a [`SeededPredictor`].
    pub enum PredictorBug {
        HedgeReversed: "The weights of the experts move the wrong way.",
        HedgeStill: "The weights of the experts never move.",
        TrustsBlindly: "The forecast is always followed.",
        NeverTrusts: "The forecast is never followed.",
        WeighsByWindow: "The costs of each window are scaled to its own maximum.",
    }
}

/// A sizer with forecasts and one bug.
#[derive(Clone, Debug)]
pub struct SeededPredictor {
    bug: PredictorBug,
    options: SizerOptions,
    robust: Sizer,
    experts: Hedge<2>,
}

impl SeededPredictor {
    /// Creates a predictor with this bug.
    pub fn new(bug: PredictorBug, options: SizerOptions) -> Self {
        let robust = Sizer::new(options).expect("experiments use valid options");
        Self { bug, options, robust, experts: Hedge::anytime() }
    }

    fn aims(&self, hint: u64) -> [f64; 2] {
        let best = eoq_optimum(hint as f64, self.options.order_cost, self.options.strand_penalty);
        let (min, max) = (self.options.batch_min as f64, self.options.batch_max as f64);
        [best.clamp(min, max).ln(), self.robust.aim()]
    }

    fn trust(&self) -> f64 {
        match self.bug {
            PredictorBug::TrustsBlindly => 1.0,
            PredictorBug::NeverTrusts => 0.0,
            _ => self.experts.weights()[0],
        }
    }
}

impl Predicts for SeededPredictor {
    fn batch(&self, hint: u64) -> u64 {
        let ([follow, robust], trust) = (self.aims(hint), self.trust());
        let batch = (trust * follow + (1.0 - trust) * robust).exp().round() as u64;
        batch.clamp(self.options.batch_min, self.options.batch_max)
    }

    fn observe(&mut self, hint: u64, demand: u64) {
        let (order, strand) = (self.options.order_cost, self.options.strand_penalty);
        let costs = self.aims(hint).map(|aim| eoq_cost(aim.exp(), demand as f64, order, strand));
        let most = costs[0].max(costs[1]);
        match self.bug {
            PredictorBug::HedgeReversed => self.experts.observe(&costs.map(|cost| -cost)),
            PredictorBug::WeighsByWindow => self.experts.observe(&costs.map(|cost| cost / most)),
            PredictorBug::HedgeStill | PredictorBug::TrustsBlindly | PredictorBug::NeverTrusts => {}
        }
        self.robust.observe(demand);
    }
}
