//! The number of units to fetch at once.

use core::time::Duration;

use super::{PredictiveSizer, Sizer, SizerOptions};
use crate::{Cost, Timestamp};

/// Size of the batch that is fetched at once. The bound holds for any size; it trades calls to the store against idle
/// units.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Batch {
    /// Always `n` units.
    Fixed(Cost),
    /// Learned for each key from what it spends, window by window.
    Learned(Sizer),
    /// Learned as well, and sized by a forecast of what the key will spend, as far as forecasts have been right. The
    /// lease driver passes them to [`Sizing::expect`]; without one, the demand of the last period is expected again.
    Predictive(PredictiveSizer),
}

impl Batch {
    /// Creates a learned batch whose learner expects nothing of a key until it has seen it spend.
    pub fn learned() -> Self {
        Self::Learned(Sizer::new(untaught()).unwrap_or_default())
    }

    /// Creates a predictive batch whose learner trusts forecasts and observations equally.
    pub fn predictive() -> Self {
        Self::Predictive(PredictiveSizer::new(untaught()).unwrap_or_default())
    }
}

fn untaught() -> SizerOptions {
    SizerOptions { batch_start: 1, ..SizerOptions::default() }
}

/// Within a period a batch is at least `1/GROWTH` of what the key has spent in it, so that a key which is suddenly hot
/// need not wait for the learner.
const GROWTH: Cost = 8;
/// The smallest batch that saves a call.
const BATCH_WORTH_IT: Cost = 2;

/// Spending of one key on one node, and the batch size that follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizing {
    untaught: Batch,
    batch: Batch,
    period: Duration,
    ends: Timestamp,
    served: Cost,
    /// Units expected in this period, and whether a forecast predicted them.
    expected: (Cost, bool),
}

impl Sizing {
    /// Creates the sizing of a key that has spent nothing yet. Demand is counted by periods of this length.
    pub fn new(batch: Batch, period: Duration) -> Self {
        Self {
            untaught: batch.clone(),
            batch,
            period,
            ends: Timestamp::EPOCH,
            served: 0,
            expected: (0, false),
        }
    }

    /// Forgets the key.
    pub fn clear(&mut self) {
        self.batch = self.untaught.clone();
        (self.ends, self.served, self.expected) = (Timestamp::EPOCH, 0, (0, false));
    }

    /// Calls `forecast` for the units that this period will need, once in each, where batches go by forecasts.
    pub fn expect(&mut self, now: Timestamp, forecast: impl FnOnce() -> Cost) {
        self.roll(now);
        if matches!(self.batch, Batch::Predictive(_)) && !self.expected.1 {
            self.expected = (forecast(), true);
        }
    }

    /// Records spent units.
    pub fn served(&mut self, units: Cost, now: Timestamp) {
        self.roll(now);
        self.served = self.served.saturating_add(units);
    }

    /// Checks whether a batch would save a call.
    pub fn is_worth_it(&mut self, now: Timestamp) -> bool {
        self.batch(now) >= BATCH_WORTH_IT
    }

    /// Returns the number of units to fetch now.
    pub fn batch(&mut self, now: Timestamp) -> Cost {
        self.roll(now);
        match &self.batch {
            Batch::Fixed(units) => *units,
            Batch::Learned(learner) => learner.batch().max(self.served / GROWTH),
            Batch::Predictive(learner) => learner.batch(self.expected.0).max(self.served / GROWTH),
        }
    }

    /// Reports a finished period's demand to the learner, and one period of zero demand if any were skipped.
    fn roll(&mut self, now: Timestamp) {
        if now < self.ends {
            return;
        }
        if self.ends > Timestamp::EPOCH {
            let ((expected, _), served, skipped) =
                (self.expected, self.served, now >= self.ends + self.period);
            match &mut self.batch {
                Batch::Fixed(_) => {}
                Batch::Learned(learner) => {
                    learner.observe(served);
                    if skipped {
                        learner.observe(0);
                    }
                }
                Batch::Predictive(learner) => {
                    learner.observe(expected, served);
                    if skipped {
                        learner.observe(0, 0);
                    }
                }
            }
        }
        (self.expected, self.ends, self.served) = ((self.served, false), now + self.period, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The batch at the beginning of the last period of a demand that alternates, with this forecast of each.
    fn batch_after(batch: Batch, forecast: impl Fn(Cost) -> Cost) -> Cost {
        let (mut sizing, mut now, mut last) = (Sizing::new(batch, SECOND), Timestamp::from_millis(1_000), 0);
        for period in 0..401 {
            let demand = if period % 2 == 0 { 20_000 } else { 200 };
            sizing.expect(now, || forecast(demand));
            last = sizing.batch(now);
            sizing.served(demand, now);
            now = now + SECOND;
        }
        last
    }

    #[test]
    fn a_forecast_sizes_batches_while_it_is_right() {
        assert_eq!(batch_after(Batch::predictive(), |demand| demand), 200, "√(2 · 20,000)");
        let learned = batch_after(Batch::learned(), |demand| demand);
        let misled = batch_after(Batch::predictive(), |demand| 20_200 - demand);
        assert!(misled.abs_diff(learned) <= learned / 10, "{misled} beside {learned}");
    }

    #[test]
    fn a_forecast_is_requested_once_per_period_and_only_where_it_counts() {
        let asked = |batch: Batch| {
            let (mut sizing, mut asked) = (Sizing::new(batch, SECOND), 0);
            for ms in [1_000, 1_001, 1_999, 2_000, 2_500] {
                sizing.expect(Timestamp::from_millis(ms), || {
                    asked += 1;
                    7
                });
            }
            asked
        };
        assert_eq!([Batch::predictive(), Batch::learned(), Batch::Fixed(7)].map(asked), [2, 0, 0]);
    }
}
