//! Estimators with a seeded bug, to show that each invariant can fail: the production one with wrong inputs
//! or outputs, and the published rule with the faults of the first implementation.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Ceiling, Estimator, Sample};

use super::invariants::{
    LEAST, MOST, check_dips, check_hang, check_light, check_recovery, check_refusals, check_share, settle,
};
use super::published::{Faults, Published};
use super::{Discipline, Infers, Scenario, Service, Step};
use throttlekit_conformance::Dice;
use throttlekit_conformance::bugs::Found;
use throttlekit_conformance::check::{Check, ensure};

throttlekit_conformance::bugs! {
    /// A bug of an estimator.
    pub enum InferenceBug {
        HidesUnderUse: "Under-use is hidden from the guard.",
        TimeoutIsSuccess: "A timeout is reported as a success that took as long.",
        DropIsFast: "A drop is reported as a success that took no time.",
        DropsUntold: "Drops are not reported.",
        ShareIsWhole: "The guard takes its share for the whole.",
        CalibratesAtLeast: "The no-load latency is measured at the least ceiling, every now and then.",
        Frozen: "The inferred ceiling is never applied.",
        QueueUnseen: "Latencies above the no-load latency are cut off, as by a timer that starts late.",
        Unbounded: "The inferred ceiling is not bounded.",
        CoarseClock: "Latencies are reported in whole tenths of a second.",
        DenialsAreSamples: "A denial by another axis is counted as a sample.",
        RefusalIsFast: "A refusal of the backend is reported as a success that took no time.",
        PublishedTolerance: "The published rule tolerates twice the no-load latency.",
        NeverDrains: "The published rule stays above the capacity, so that its minimum rises with the queue.",
        LeastOfSingleSamples: "The published rule takes the fastest single call for the no-load latency.",
    }
}

struct Miswired {
    bug: Option<InferenceBug>,
    estimator: Estimator,
    calls: u64,
    initial: u32,
}

impl Miswired {
    fn new(bug: Option<InferenceBug>, initial: u32) -> Self {
        let ceiling = Ceiling::between(LEAST, MOST).starting_at(initial);
        Self { bug, estimator: Estimator::new(ceiling), calls: 0, initial }
    }

    fn told(&self, sample: Sample) -> Sample {
        match self.bug {
            Some(InferenceBug::HidesUnderUse) => Sample { in_flight: sample.allowed, ..sample },
            Some(InferenceBug::ShareIsWhole) => Sample { allowed: self.estimator.limit(), ..sample },
            Some(InferenceBug::CoarseClock) => {
                let tenths = sample.latency.as_millis() as u64 / 100;
                Sample { latency: Duration::from_millis(tenths * 100), ..sample }
            }
            Some(InferenceBug::QueueUnseen) => {
                let seen = sample.latency.min(Duration::from_millis(super::ALONE_MS));
                Sample { latency: seen, ..sample }
            }
            _ => sample,
        }
    }
}

impl Infers for Miswired {
    fn limit(&self) -> u32 {
        let limit = self.estimator.limit();
        match self.bug {
            Some(InferenceBug::CalibratesAtLeast) if self.calls % 1_000 > 900 => LEAST,
            Some(InferenceBug::Frozen) => self.initial,
            Some(InferenceBug::Unbounded) if limit < 2 * LEAST => 1,
            _ => limit,
        }
    }

    fn success(&mut self, sample: Sample, now: Timestamp) -> u32 {
        self.calls += 1;
        self.estimator.success(self.told(sample), now);
        self.limit()
    }

    fn dropped(&mut self, sample: Sample, now: Timestamp) -> u32 {
        match self.bug {
            Some(InferenceBug::TimeoutIsSuccess) => self.success(sample, now),
            Some(InferenceBug::DropIsFast | InferenceBug::RefusalIsFast) => {
                self.success(Sample { latency: Duration::from_micros(1), ..sample }, now)
            }
            Some(InferenceBug::DropsUntold) => self.limit(),
            _ => {
                self.estimator.dropped(now);
                self.limit()
            }
        }
    }

    fn ignored(&mut self, _sample: Sample, _now: Timestamp) {}
}

/// Half of the servers fail.
const SMALLER: Step = Step { capacity: 0.5, service: 1.0 };
const SEED: u64 = 3;

fn wired(bug: Option<InferenceBug>) -> impl Fn(u32) -> Miswired {
    move |initial| Miswired::new(bug, initial)
}

fn published(faults: Faults, tolerance: f64) -> impl Fn(u32) -> Published {
    move |initial| Published::new(faults, tolerance, initial)
}

fn settles(make: &impl super::invariants::Make, service: Service) -> Check {
    settle(make, Scenario::steady(Discipline::Queue, service, 32, 6_000), SEED).check()
}

impl InferenceBug {
    /// Checks the invariant that must find it.
    fn invariant(self, make: &impl super::invariants::Make) -> Check {
        match self {
            Self::HidesUnderUse => check_light(make, SEED),
            Self::TimeoutIsSuccess | Self::DropIsFast | Self::DropsUntold => check_hang(make, SEED),
            Self::ShareIsWhole => check_share(make, SEED),
            Self::CalibratesAtLeast | Self::Unbounded => check_dips(make, SEED),
            Self::Frozen => check_recovery(make, SMALLER, SEED),
            Self::RefusalIsFast => check_refusals(make, SEED),
            Self::QueueUnseen | Self::PublishedTolerance | Self::NeverDrains => {
                settles(make, Service::Steady)
            }
            Self::CoarseClock => settles(make, Service::Jittered),
            // One sample far below the mean becomes the minimum.
            Self::LeastOfSingleSamples => settles(make, Service::Wide),
            Self::DenialsAreSamples => unreachable!("judged where nothing queues"),
        }
    }

    /// Checks it on an estimator with the bug.
    fn check(self) -> Check {
        match self {
            Self::DenialsAreSamples => stays_up(Faults { denials_are_samples: true }),
            Self::PublishedTolerance => self.invariant(&published(Faults::default(), 2.0)),
            Self::NeverDrains => self.invariant(&published(Faults::default(), 1.1)),
            Self::LeastOfSingleSamples => self.invariant(&published(Faults::default(), 1.5)),
            _ => self.invariant(&wired(Some(self))),
        }
    }

    /// Checks it on the production estimator.
    fn check_control(self) -> Check {
        match self {
            Self::DenialsAreSamples => stays_up(Faults::default()),
            _ => self.invariant(&wired(None)),
        }
    }
}

/// Searches for the seeded bugs, each with the invariant that must find it.
pub fn find_seeded() -> Found {
    Found::all(|bug: InferenceBug| bug.check().is_err())
}

/// Returns the bugs whose invariant also fails without them, with the failure: such a finding shows nothing.
pub fn examine_controls() -> Vec<String> {
    let failed = |bug: &InferenceBug| {
        bug.check_control().err().map(|counterexample| format!("control of {}: {counterexample}", bug.name()))
    };
    InferenceBug::ALL.iter().filter_map(failed).collect()
}

/// The number of runs of the first implementation: its final ceiling varies from 4 to 512 with every denial.
const PLAYS: u64 = 64;

/// Returns the final ceiling of the first implementation after 5,000 completions of 50 ms from a ceiling of
/// 100 that is always in full use, with this many denials per thousand on another axis: the mean over many
/// seeds.
pub fn first_implementation(denied_per_mille: u64) -> u32 {
    let faults = Faults { denials_are_samples: true };
    (0..PLAYS).map(|seed| denied_elsewhere(faults, denied_per_mille, seed)).sum::<u32>() / PLAYS as u32
}

fn denied_elsewhere(faults: Faults, denied_per_mille: u64, seed: u64) -> u32 {
    let mut guard = Published::new(faults, 2.0, 100);
    let mut dice = Dice::new(seed);
    for _ in 0..5_000 {
        let allowed = guard.limit();
        let latency = Duration::from_millis(super::ALONE_MS);
        let sample = Sample { latency, in_flight: allowed, allowed };
        if dice.below(1_000) < denied_per_mille {
            guard.ignored(sample, Timestamp::EPOCH);
        } else {
            guard.success(sample, Timestamp::EPOCH);
        }
    }
    guard.limit()
}

/// Checks `inference_survives_denials`, where nothing ever queues: denials do not lower a ceiling.
fn stays_up(faults: Faults) -> Check {
    let last = denied_elsewhere(faults, 50, SEED);
    ensure(last >= 100, || format!("from 100 to {last} by denials"))
}
