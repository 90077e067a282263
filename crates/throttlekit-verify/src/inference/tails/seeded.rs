//! Broken estimators, to show that the thresholds can fail: ours with wrong inputs, and rules that mistake
//! variance for load.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Ceiling, Estimator, Sample};

use super::super::invariants::{LEAST, MOST};
use super::super::published::{Faults, Published};
use super::super::{Infers, Make};
use super::compare::{compare, ours};
use super::peers::{Gradient2Limit, VegasLimit};
use super::{Scenario, Shape};
use throttlekit_conformance::bugs::Found;
use throttlekit_conformance::check::Check;

/// The size of the search for a bug.
const SEEDS: u64 = 3;
const ARRIVALS: (u32, u32) = (8_000, 10_000);
const BELOW: Scenario = Scenario::new(Shape::Bimodal2, 0.8, 32, ARRIVALS);
const BELOW_SMALL: Scenario = Scenario::new(Shape::Bimodal5, 0.8, 8, ARRIVALS);
const ABOVE: Scenario = Scenario::new(Shape::Exponential, 1.5, 32, ARRIVALS);
const ABOVE_SMALL: Scenario = Scenario::new(Shape::Bimodal2, 1.5, 8, ARRIVALS);
const WITH_IGNORED: Scenario = Scenario { ignored_per_mille: 200, ..BELOW };

/// The delay of a limit that is applied late, in completions.
const LATE: u32 = 4_096;
/// The initial value of a limit that never falls.
const HIGH: u32 = 128;

throttlekit_conformance::bugs! {
    /// A bug of an estimator.
    pub enum TailBug {
        MeanLatencyIsTheSignal: "The mean latency is taken for the load.",
        LowersWithoutConfidence: "One group of slow calls lowers the limit.",
        OneCallIsTheNoLoadLatency: "The fastest call is taken for the no-load latency.",
        AverageLatencyIsTheNoLoadLatency: "The average latency is taken for the no-load latency.",
        QueueIsTheMeasureOfItself: "The queue raises the latency that it is measured by.",
        CountsIgnoredAsDrops: "A call that was handed back is counted as a drop.",
        LongCallIsADrop: "A call of more than five seconds is a timeout.",
        NeverGrows: "The limit never rises above where it started.",
        NeverLowers: "The limit never falls.",
        GrowsWhenUnderUsed: "Every call seems to have been admitted at the limit, however few there were.",
        LoadAtAdmissionIsLost: "No call seems to have been admitted near the limit.",
        AppliesTheLimitLate: "The limit in force is thousands of calls old.",
        OnlySlowCallsAreSamples: "Calls that take less than the mean are not reported.",
    }
}

impl TailBug {
    /// Returns a scenario that exposes it.
    pub fn scenario(self) -> Scenario {
        match self {
            Self::MeanLatencyIsTheSignal
            | Self::LowersWithoutConfidence
            | Self::LongCallIsADrop
            | Self::NeverGrows => BELOW,
            Self::GrowsWhenUnderUsed => BELOW_SMALL,
            Self::CountsIgnoredAsDrops => WITH_IGNORED,
            Self::AverageLatencyIsTheNoLoadLatency => ABOVE_SMALL,
            Self::OneCallIsTheNoLoadLatency
            | Self::QueueIsTheMeasureOfItself
            | Self::NeverLowers
            | Self::LoadAtAdmissionIsLost
            | Self::AppliesTheLimitLate
            | Self::OnlySlowCallsAreSamples => ABOVE,
        }
    }

    /// Checks an estimator with this bug against the thresholds.
    fn check(self) -> Check {
        let scenario = self.scenario();
        match self {
            Self::MeanLatencyIsTheSignal => check(&additive, scenario),
            Self::LowersWithoutConfidence => check(&Hasty::new, scenario),
            Self::OneCallIsTheNoLoadLatency => check(&|_| VegasLimit::new(1), scenario),
            Self::AverageLatencyIsTheNoLoadLatency => check(&|_| Gradient2Limit::default(), scenario),
            Self::QueueIsTheMeasureOfItself => check(&published, scenario),
            _ => check(&wired(self), scenario),
        }
    }
}

/// Searches for the seeded bugs. Also returns the scenarios that fail without them: such a finding shows
/// nothing.
pub fn find_seeded() -> (Found, Vec<String>) {
    let mut controls: Vec<Scenario> = Vec::new();
    for scenario in TailBug::ALL.iter().map(|bug| bug.scenario()) {
        if !controls.contains(&scenario) {
            controls.push(scenario);
        }
    }
    let failed = |scenario: Scenario| {
        check(&|_| ours(), scenario).err().map(|counterexample| format!("{scenario:?}: {counterexample}"))
    };
    let found = Found::all(|bug: TailBug| bug.check().is_err());
    (found, controls.into_iter().filter_map(failed).collect())
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

/// Decides on one group of calls: slower than usual lowers the limit, otherwise it grows.
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

struct Wired {
    estimator: Estimator,
    bug: TailBug,
    limit: u32,
    endings: u32,
}

fn wired(bug: TailBug) -> impl Fn(u32) -> Wired {
    move |initial| {
        let initial = if bug == TailBug::NeverLowers { HIGH } else { initial };
        let estimator = Estimator::new(Ceiling::between(LEAST, MOST).starting_at(initial));
        Wired { estimator, bug, limit: initial, endings: 0 }
    }
}

impl Wired {
    fn applied(&mut self, limit: u32) -> u32 {
        self.endings += 1;
        self.limit = match self.bug {
            TailBug::AppliesTheLimitLate if !self.endings.is_multiple_of(LATE) => self.limit,
            TailBug::NeverGrows => self.limit.min(limit),
            TailBug::NeverLowers => self.limit.max(limit),
            _ => limit,
        };
        self.limit
    }

    fn seen(&self, sample: Sample) -> Sample {
        match self.bug {
            TailBug::GrowsWhenUnderUsed => Sample { in_flight: sample.allowed, ..sample },
            TailBug::LoadAtAdmissionIsLost => Sample { in_flight: 1 + sample.in_flight / 2, ..sample },
            _ => sample,
        }
    }
}

impl Infers for Wired {
    fn limit(&self) -> u32 {
        self.limit
    }
    fn success(&mut self, sample: Sample, now: Timestamp) -> u32 {
        let limit = match self.bug {
            TailBug::LongCallIsADrop if sample.latency > Duration::from_secs(5) => {
                self.estimator.dropped(now)
            }
            TailBug::OnlySlowCallsAreSamples if sample.latency < Duration::from_secs(1) => {
                self.estimator.limit()
            }
            _ => self.estimator.success(self.seen(sample), now),
        };
        self.applied(limit)
    }
    fn dropped(&mut self, _sample: Sample, now: Timestamp) -> u32 {
        let limit = self.estimator.dropped(now);
        self.applied(limit)
    }
    fn ignored(&mut self, _sample: Sample, now: Timestamp) {
        if self.bug == TailBug::CountsIgnoredAsDrops {
            let limit = self.estimator.dropped(now);
            self.applied(limit);
        }
    }
}
