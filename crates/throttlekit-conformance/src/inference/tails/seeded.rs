//! Broken estimators, to show that the thresholds can fail: ours, informed wrongly, and rules that take variance for load.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Ceiling, Estimator, Sample};

use super::super::laws::{LEAST, MOST};
use super::super::published::{Faults, Published};
use super::super::{Infers, Make};
use super::compare::{compare, ours};
use super::peers::{Gradient2Limit, VegasLimit};
use super::{Scenario, Shape};
use crate::check::Check;

/// Seeds and arrivals by which a bug is looked for.
const SEEDS: u64 = 3;
const ARRIVALS: (u32, u32) = (8_000, 10_000);
const BELOW: Scenario = Scenario::new(Shape::Bimodal2, 0.8, 32, ARRIVALS);
const BELOW_SMALL: Scenario = Scenario::new(Shape::Bimodal5, 0.8, 8, ARRIVALS);
const ABOVE: Scenario = Scenario::new(Shape::Exponential, 1.5, 32, ARRIVALS);
const ABOVE_SMALL: Scenario = Scenario::new(Shape::Bimodal2, 1.5, 8, ARRIVALS);
const WITH_IGNORED: Scenario = Scenario { ignored_per_mille: 200, ..BELOW };

/// How many endings a limit waits to be applied that is applied late.
const LATE: u32 = 4_096;
/// Where a limit begins that never falls.
const HIGH: u32 = 128;

/// A bug: its name, where it shows, and what the thresholds say of it there.
pub type Seeded = (&'static str, Scenario, fn(Scenario) -> Check);

/// Every bug.
pub const SEEDED: [Seeded; 13] = [
    ("mean_latency_is_the_signal", BELOW, |scenario| check(&additive, scenario)),
    ("lowers_without_confidence", BELOW, |scenario| check(&Hasty::new, scenario)),
    ("one_call_is_the_no_load_latency", ABOVE, |scenario| check(&|_| VegasLimit::new(1), scenario)),
    ("average_latency_is_the_no_load_latency", ABOVE_SMALL, |scenario| {
        check(&|_| Gradient2Limit::default(), scenario)
    }),
    ("queue_is_the_measure_of_itself", ABOVE, |scenario| check(&published, scenario)),
    ("counts_ignored_as_drops", WITH_IGNORED, |scenario| check(&wired(Wire::IgnoredIsDropped), scenario)),
    ("long_call_is_a_drop", BELOW, |scenario| check(&wired(Wire::LongIsDropped), scenario)),
    ("never_grows", BELOW, |scenario| check(&wired(Wire::NeverGrows), scenario)),
    ("never_lowers", ABOVE, |scenario| check(&wired(Wire::NeverLowers), scenario)),
    ("grows_when_under_used", BELOW_SMALL, |scenario| check(&wired(Wire::HidesUnderUse), scenario)),
    ("load_at_admission_is_lost", ABOVE, |scenario| check(&wired(Wire::LosesLoad), scenario)),
    ("applies_the_limit_late", ABOVE, |scenario| check(&wired(Wire::AppliesLate), scenario)),
    ("only_slow_calls_are_samples", ABOVE, |scenario| check(&wired(Wire::OnlySlow), scenario)),
];

/// The bugs that the thresholds find and those they do not, and bugs whose scenario also fails without them.
pub fn find_seeded() -> (Vec<&'static str>, Vec<&'static str>, Vec<String>) {
    let (found, missed): (Vec<_>, Vec<_>) =
        SEEDED.iter().partition(|(_, scenario, bug)| bug(*scenario).is_err());
    let mut controls: Vec<Scenario> = Vec::new();
    SEEDED.iter().for_each(|(_, scenario, _)| {
        if !controls.contains(scenario) {
            controls.push(*scenario);
        }
    });
    let failed =
        |scenario: Scenario| check(&|_| ours(), scenario).err().map(|story| format!("{scenario:?}: {story}"));
    let names = |of: Vec<&Seeded>| of.into_iter().map(|(name, ..)| *name).collect();
    (names(found), names(missed), controls.into_iter().filter_map(failed).collect())
}

fn check(make: &impl Make, scenario: Scenario) -> Check {
    compare(make, scenario, SEEDS, false).results[0].check(scenario.load)
}

fn additive(initial: u32) -> Estimator {
    Estimator::new(Ceiling::between(LEAST, MOST).starting_at(initial).aimd(0.9))
}

fn published(initial: u32) -> Published {
    Published::new(Faults::default(), 2.0, initial)
}

/// One group of calls decides: slower than usual lowers, else it grows.
struct Hasty {
    limit: f64,
    usual: f64,
    sum: f64,
    calls: f64,
}

impl Hasty {
    fn new(initial: u32) -> Self {
        Self { limit: f64::from(initial), usual: 0.0, sum: 0.0, calls: 0.0 }
    }
}

impl Infers for Hasty {
    fn limit(&self) -> u32 {
        self.limit as u32
    }
    fn success(&mut self, sample: Sample, _now: Timestamp) -> u32 {
        (self.sum, self.calls) = (self.sum + sample.latency.as_secs_f64(), self.calls + 1.0);
        if self.calls == 8.0 {
            let mean = self.sum / self.calls;
            let by = if self.usual > 0.0 && mean > 1.4 * self.usual { 0.8 } else { 1.05 };
            self.limit = (self.limit * by).clamp(f64::from(LEAST), f64::from(MOST));
            self.usual += (mean - self.usual) / 8.0;
            (self.sum, self.calls) = (0.0, 0.0);
        }
        self.limit()
    }
    fn dropped(&mut self, _sample: Sample, _now: Timestamp) -> u32 {
        self.limit()
    }
    fn ignored(&mut self, _sample: Sample, _now: Timestamp) {}
}

/// What is wrong between the guard that ships and its estimator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    /// A slot that was given back unused is a drop.
    IgnoredIsDropped,
    /// A call of more than five seconds is a timeout.
    LongIsDropped,
    /// The limit never rises above where it started.
    NeverGrows,
    /// The limit never falls.
    NeverLowers,
    /// Every call seems to have been admitted at the limit, however few there were.
    HidesUnderUse,
    /// No call seems to have been admitted near the limit.
    LosesLoad,
    /// The limit in force is as old as [`LATE`] endings.
    AppliesLate,
    /// Calls that take less than the mean are not reported.
    OnlySlow,
}

struct Wired {
    estimator: Estimator,
    wire: Wire,
    limit: u32,
    endings: u32,
}

fn wired(wire: Wire) -> impl Fn(u32) -> Wired {
    move |initial| {
        let initial = if wire == Wire::NeverLowers { HIGH } else { initial };
        let estimator = Estimator::new(Ceiling::between(LEAST, MOST).starting_at(initial));
        Wired { estimator, wire, limit: initial, endings: 0 }
    }
}

impl Wired {
    fn applied(&mut self, limit: u32) -> u32 {
        self.endings += 1;
        self.limit = match self.wire {
            Wire::AppliesLate if !self.endings.is_multiple_of(LATE) => self.limit,
            Wire::NeverGrows => self.limit.min(limit),
            Wire::NeverLowers => self.limit.max(limit),
            _ => limit,
        };
        self.limit
    }

    fn seen(&self, sample: Sample) -> Sample {
        match self.wire {
            Wire::HidesUnderUse => Sample { in_flight: sample.allowed, ..sample },
            Wire::LosesLoad => Sample { in_flight: 1 + sample.in_flight / 2, ..sample },
            _ => sample,
        }
    }
}

impl Infers for Wired {
    fn limit(&self) -> u32 {
        self.limit
    }
    fn success(&mut self, sample: Sample, now: Timestamp) -> u32 {
        let limit = match self.wire {
            Wire::LongIsDropped if sample.latency > Duration::from_secs(5) => self.estimator.dropped(now),
            Wire::OnlySlow if sample.latency < Duration::from_secs(1) => self.estimator.limit(),
            _ => self.estimator.success(self.seen(sample), now),
        };
        self.applied(limit)
    }
    fn dropped(&mut self, _sample: Sample, now: Timestamp) -> u32 {
        let limit = self.estimator.dropped(now);
        self.applied(limit)
    }
    fn ignored(&mut self, _sample: Sample, now: Timestamp) {
        if self.wire == Wire::IgnoredIsDropped {
            let limit = self.estimator.dropped(now);
            self.applied(limit);
        }
    }
}
