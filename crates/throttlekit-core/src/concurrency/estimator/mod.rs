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

/// Measurement of one completed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Latency. For a language model, the time to the first token: the total time depends more on the length of the
    /// output than on the load of the model.
    pub latency: Duration,
    /// Number of calls in flight when it was admitted, itself included.
    pub in_flight: u32,
    /// Concurrency limit at that moment: the ceiling, or this node's share of it.
    pub allowed: u32,
}

/// Infers how many concurrent calls a backend takes before work queues up.
///
/// Work that ends as [`Ignored`](super::Ending::Ignored) is not reported at all. The estimate is in units of the whole
/// ceiling, also on a node that has a share of it: only the ratio of what is in flight to what is allowed counts. In
/// fixed memory, and a few additions for most samples.
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
    /// Maximum reported by other nodes; that of the ceiling without reports.
    told_most: u32,
    round: Round,
    rule: Learned,
    /// Instant of the last reset of the no-load latency.
    calibrated: Option<Timestamp>,
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every estimator is of the larger kind")]
enum Learned {
    Inferred(Inferred),
    Aimd(Aimd),
}

/// Two ways to detect a queue: where latencies vary little, the mean of a few calls shows it; where they vary by the
/// call, only the fastest do.
#[derive(Clone, Debug)]
struct Inferred {
    variation: Variation,
    steady: Gradient,
    /// Latency without a queue by that method, as of its last move.
    alone: Option<f64>,
    varied: Option<Standing>,
    headroom: f64,
}

impl Inferred {
    fn new(headroom: f64) -> Self {
        let steady = Gradient::new(headroom);
        Self { variation: Variation::default(), steady, alone: None, varied: None, headroom }
    }

    /// Records a latency. Returns whether the way to detect a queue has changed with it.
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
    /// Creates an estimator without observations.
    pub fn new(ceiling: Ceiling) -> Self {
        let rule = match ceiling.rule {
            Rule::Gradient => Learned::Inferred(Inferred::new(ceiling.tolerance)),
            Rule::Aimd { backoff } => Learned::Aimd(Aimd::new(backoff, ceiling.tolerance)),
        };
        let estimate = f64::from(ceiling.initial);
        Self { ceiling, estimate, told_most: ceiling.most, round: Round::new(), rule, calibrated: None }
    }

    /// Returns the current concurrency limit.
    pub fn limit(&self) -> u32 {
        libm::round(self.estimate) as u32
    }

    /// Records a successful call.
    pub fn success(&mut self, sample: Sample, now: Timestamp) -> u32 {
        // A latency of zero carries no information, and would be the minimum forever.
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

    /// Records a call that the backend rejected, or that timed out. Its latency is no measure of the backend.
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

    /// Caps the estimate from now on, until called again. For nodes that receive the number of calls tried at all from
    /// others: beyond that nothing can be learned.
    pub fn at_most(&mut self, most: u32) {
        self.told_most = most.clamp(self.ceiling.least, self.ceiling.most);
        self.estimate = self.estimate.min(f64::from(self.told_most));
    }

    /// Returns the active rule while latencies vary.
    fn standing(&mut self) -> Option<&mut Standing> {
        match &mut self.rule {
            Learned::Inferred(inferred) => inferred.varied.as_mut(),
            Learned::Aimd(_) => None,
        }
    }

    /// Applies the target of the rule for varying latencies, if any.
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

    /// Moves towards `aim`, within the bounds. Returns by which factor the limit changed.
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
