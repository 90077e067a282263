//! A sizer that uses a forecast.

use super::{Sizer, SizerOptions, SizingError};
use crate::learn::Hedge;

/// Sizes a lease by a forecast of the demand, as far as it has been right.
///
/// Two experts: one follows the forecast exactly, one is a [`Sizer`] that does not see it. A [`Hedge`] weighs them by
/// what each would have cost, and the batch is their weighted geometric mean, which by convexity in ln b costs no more
/// than the weighted mean of their costs. So with good forecasts it comes near the optimum for each demand, and with
/// bad ones near the sizer alone.
///
/// The costs are passed to the hedge unscaled. If they were weighed window by window, a forecast that is right about
/// the small windows and wrong about the few that matter would win.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictiveSizer {
    robust: Sizer,
    experts: Hedge<2>,
}

impl PredictiveSizer {
    /// Creates a sizer that trusts both experts equally.
    pub fn new(options: SizerOptions) -> Result<Self, SizingError> {
        Ok(Self { robust: Sizer::new(options)?, experts: Hedge::anytime() })
    }

    /// Returns the number of units to request at once in a window for which `hint` units are expected.
    pub fn batch(&self, hint: u64) -> u64 {
        let [follow, robust] = self.aims(hint);
        let [trust, rest] = self.experts.weights();
        self.robust.options.batch(trust * follow + rest * robust)
    }

    /// Records the units that were spent in a window for which `hint` had been expected.
    pub fn observe(&mut self, hint: u64, demand: u64) {
        // Being better than a sizer that has seen nothing shows nothing, so the first window is not weighed.
        if self.robust.windows > 0 {
            let costs = self.aims(hint).map(|aim| self.robust.options.cost(aim, demand as f64));
            self.experts.observe(&costs);
        }
        self.robust.observe(demand);
    }

    /// Returns the trust in the forecast, from 0 to 1.
    pub fn trust(&self) -> f64 {
        self.experts.weights()[0]
    }

    fn aims(&self, hint: u64) -> [f64; 2] {
        [self.robust.options.best_aim(hint as f64), self.robust.aim()]
    }
}

impl Default for PredictiveSizer {
    fn default() -> Self {
        Self { robust: Sizer::default(), experts: Hedge::anytime() }
    }
}
