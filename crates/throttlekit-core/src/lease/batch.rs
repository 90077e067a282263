//! How many units would be good to fetch.

use core::time::Duration;

use super::{Sizer, SizerOptions};
use crate::{Cost, Timestamp};

/// How large a batch is fetched at once. Whatever it is, the bound holds; it trades calls to the store against units
/// that lie idle.
#[derive(Clone, Debug, PartialEq)]
pub enum Batch {
    /// Always this many.
    Fixed(Cost),
    /// Learned for each key from what it spends, window by window.
    Learned(Sizer),
}

impl Batch {
    /// Learned, by a learner that expects nothing of a key until it has seen it spend.
    pub fn learned() -> Self {
        let options = SizerOptions { batch_start: 1, ..SizerOptions::default() };
        Self::Learned(Sizer::new(options).unwrap_or_default())
    }
}

/// Within a period a batch is at least one part in so many of what the key has spent in it, so that a key which is
/// suddenly hot need not wait for the learner.
const GROWTH: Cost = 8;
/// A batch below this saves nothing.
const BATCH_WORTH_IT: Cost = 2;

/// What one key on one node spends, and what follows for its batches.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizing {
    untaught: Batch,
    batch: Batch,
    period: Duration,
    ends: Timestamp,
    served: Cost,
}

impl Sizing {
    /// Of a key that has spent nothing yet. Demand is counted by periods of this length.
    pub fn new(batch: Batch, period: Duration) -> Self {
        Self { untaught: batch.clone(), batch, period, ends: Timestamp::EPOCH, served: 0 }
    }

    /// Forgets the key.
    pub fn clear(&mut self) {
        self.batch = self.untaught.clone();
        (self.ends, self.served) = (Timestamp::EPOCH, 0);
    }

    /// Units were spent.
    pub fn served(&mut self, units: Cost, now: Timestamp) {
        self.roll(now);
        self.served = self.served.saturating_add(units);
    }

    /// Whether a batch would save a call.
    pub fn is_worth_it(&mut self, now: Timestamp) -> bool {
        self.batch(now) >= BATCH_WORTH_IT
    }

    /// How many would be good to fetch now.
    pub fn batch(&mut self, now: Timestamp) -> Cost {
        self.roll(now);
        match &self.batch {
            Batch::Fixed(units) => *units,
            Batch::Learned(learner) => learner.batch().max(self.served / GROWTH),
        }
    }

    /// A period that is over tells the learner what it saw; one more, that nothing came in it.
    fn roll(&mut self, now: Timestamp) {
        if now < self.ends {
            return;
        }
        let begun = self.ends > Timestamp::EPOCH;
        if let (Batch::Learned(learner), true) = (&mut self.batch, begun) {
            learner.observe(self.served);
            if now >= self.ends + self.period {
                learner.observe(0);
            }
        }
        (self.ends, self.served) = (now + self.period, 0);
    }
}
