//! A ceiling that follows latency.

use core::time::Duration;

use super::aimd::Aimd;
use super::ceiling::{Ceiling, Rule};
use super::gradient::Gradient;
use super::round::{Round, Seen, Wish};
use super::standing::Standing;
use super::variation::Variation;
use crate::Timestamp;
use crate::time::nanos;

/// What one piece of work told when it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// How long it took. For a language model, the time to the first token: the whole time tells more of how long
    /// the answer was than of how loaded the model is.
    pub latency: Duration,
    /// How many were in flight when it was let in, itself among them.
    pub in_flight: u32,
    /// How many were allowed to be just then: the ceiling, or the part of it that is this node's.
    pub allowed: u32,
}

/// Infers how many at a time a backend takes before work queues up.
///
/// Work that ends as [`Ignored`](super::Ending::Ignored) is not told at all. The estimate is in units of the whole
/// ceiling, also on a node that is allowed a share of it: only the ratio of what is in flight to what is allowed
/// counts. In fixed memory, and a few additions for most samples.
///
/// ```
/// use core::time::Duration;
/// use throttlekit_core::Timestamp;
/// use throttlekit_core::concurrency::{Ceiling, Estimator, Sample};
///
/// let mut estimator = Estimator::new(Ceiling::between(4, 512));
/// for _ in 0..1_000 {
///     let allowed = estimator.limit();
///     let latency = Duration::from_millis(50);
///     estimator.success(Sample { latency, in_flight: allowed, allowed }, Timestamp::EPOCH);
/// }
/// assert!(estimator.limit() > 50, "nothing queued, so there was room");
/// ```
#[derive(Clone, Debug)]
pub struct Estimator {
    ceiling: Ceiling,
    estimate: f64,
    /// The most by what others say; that of the ceiling where they say nothing.
    told_most: u32,
    round: Round,
    rule: Learned,
    /// Since when the no-load latency was not forgotten.
    calibrated: Option<Timestamp>,
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every estimator is of the larger kind")]
enum Learned {
    Inferred(Inferred),
    Aimd(Aimd),
}

/// Two ways to see a queue: where latencies vary little a mean of a few calls shows it, where they vary by the call only
/// the fastest of them do.
#[derive(Clone, Debug)]
struct Inferred {
    variation: Variation,
    steady: Gradient,
    /// How long work takes without a queue by that, as of its last move.
    alone: Option<f64>,
    varied: Option<Standing>,
    headroom: f64,
}

impl Inferred {
    fn new(headroom: f64) -> Self {
        let steady = Gradient::new(headroom);
        Self { variation: Variation::default(), steady, alone: None, varied: None, headroom }
    }

    /// Takes a latency in. Returns whether the way to see a queue has changed with it.
    fn follow(&mut self, sample: Sample) -> bool {
        let varies = self.variation.add(nanos(sample.latency) as f64, self.alone);
        if varies == self.varied.is_some() {
            return false;
        }
        if varies {
            let (starting, alone) = (self.steady.is_starting(), self.alone.take());
            self.varied = Some(Standing::new(starting, alone, sample.in_flight));
        } else {
            self.steady = Gradient::resumed(self.headroom);
            self.varied = None;
        }
        true
    }
}

impl Estimator {
    /// An estimator that knows nothing yet.
    pub fn new(ceiling: Ceiling) -> Self {
        let rule = match ceiling.rule {
            Rule::Gradient => Learned::Inferred(Inferred::new(ceiling.tolerance)),
            Rule::Aimd { backoff } => Learned::Aimd(Aimd::new(backoff, ceiling.tolerance)),
        };
        let estimate = f64::from(ceiling.initial);
        Self { ceiling, estimate, told_most: ceiling.most, round: Round::new(), rule, calibrated: None }
    }

    /// How many at a time, now.
    pub fn limit(&self) -> u32 {
        libm::round(self.estimate) as u32
    }

    /// Work was done.
    pub fn success(&mut self, sample: Sample, now: Timestamp) -> u32 {
        // No work takes no time: such a sample says nothing, and would be the least for ever.
        if sample.latency.is_zero() {
            return self.limit();
        }
        if let Learned::Inferred(inferred) = &mut self.rule
            && inferred.follow(sample)
        {
            self.round = Round::new();
        }
        let limit = f64::from(self.limit());
        if let Some(standing) = self.standing() {
            let aim = standing.success(sample, limit);
            self.lead(aim, now);
        } else if let Some(seen) = self.round.success(sample) {
            self.decide(seen, now);
        }
        self.limit()
    }

    /// Work was turned away by the backend, or timed out. How long that took says nothing of the backend.
    pub fn dropped(&mut self, now: Timestamp) -> u32 {
        let limit = f64::from(self.limit());
        if let Some(standing) = self.standing() {
            let aim = standing.dropped(limit);
            self.lead(aim, now);
        } else if let Some(seen) = self.round.dropped() {
            self.decide(seen, now);
        }
        self.limit()
    }

    /// Estimates no more than this from now on, until told otherwise. For who hears from others how many are tried at all:
    /// beyond that nothing can be learnt.
    pub fn at_most(&mut self, most: u32) {
        self.told_most = most.clamp(self.ceiling.least, self.ceiling.most);
        self.estimate = self.estimate.min(f64::from(self.told_most));
    }

    /// The rule in force while latencies vary.
    fn standing(&mut self) -> Option<&mut Standing> {
        match &mut self.rule {
            Learned::Inferred(inferred) => inferred.varied.as_mut(),
            Learned::Aimd(_) => None,
        }
    }

    /// Goes where latencies that vary lead to, if anywhere.
    fn lead(&mut self, aim: Option<f64>, now: Timestamp) {
        let Some(aim) = aim else { return };
        let due = self.recalibration_is_due(now);
        let times = self.go(aim);
        if let Some(standing) = self.standing() {
            standing.moved(times);
            if due {
                standing.recalibrate();
            }
        }
    }

    fn decide(&mut self, seen: Seen, now: Timestamp) {
        let due = self.recalibration_is_due(now);
        let limit = f64::from(self.limit());
        let (aim, wish) = match &mut self.rule {
            Learned::Inferred(Inferred { steady, alone, .. }) => {
                if due {
                    steady.recalibrate();
                }
                let aim = steady.next(limit, seen);
                *alone = steady.alone();
                (aim, steady.wish())
            }
            Learned::Aimd(aimd) => {
                if due {
                    aimd.recalibrate();
                }
                (aimd.next(limit, seen), Wish::default())
            }
        };
        let times = self.go(aim);
        self.round.restart(times, wish);
    }

    /// Moves towards this, within the bounds. Returns by which factor the limit changed.
    fn go(&mut self, aim: f64) -> f64 {
        let before = f64::from(self.limit());
        self.estimate = aim.clamp(f64::from(self.ceiling.least), f64::from(self.told_most));
        f64::from(self.limit()) / before
    }

    fn recalibration_is_due(&mut self, now: Timestamp) -> bool {
        let Some(every) = self.ceiling.recalibrate_every else { return false };
        let since = *self.calibrated.get_or_insert(now);
        let due = now.since(since) >= every;
        if due {
            self.calibrated = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests;
