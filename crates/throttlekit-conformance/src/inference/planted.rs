//! Guards with a deliberate bug, to show that each law can fail: the one that ships, told or heard wrongly, and the
//! published rule with the faults of the first implementation.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Ceiling, Estimator, Sample};

use super::laws::{
    LEAST, MOST, check_dips, check_hang, check_light, check_recovery, check_refusals, check_share, settle,
};
use super::published::{Faults, Published};
use super::{Discipline, Infers, Service, Step, World};
use crate::Dice;
use crate::check::{Check, ensure};

/// What is wrong with the guard that ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wiring {
    /// Under-use is hidden from it.
    HidesUnderUse,
    /// A timeout is told as a success that took as long.
    TimeoutIsSuccess,
    /// A drop is told as a success that took no time.
    DropIsFast,
    /// It is not told of drops.
    DropsUntold,
    /// It takes its share for the whole.
    ShareIsWhole,
    /// The no-load latency is measured at the least, every now and then.
    CalibratesAtLeast,
    /// What it says is never put into force.
    Frozen,
    /// Latencies above the no-load latency are cut off, as by a timer that starts late.
    QueueUnseen,
    /// What it says is not bounded.
    Unbounded,
    /// Latencies are told in whole tenths of a second.
    CoarseClock,
    /// Nothing: the control.
    Right,
}

struct Miswired {
    wiring: Wiring,
    estimator: Estimator,
    calls: u64,
    initial: u32,
}

impl Miswired {
    fn new(wiring: Wiring, initial: u32) -> Self {
        let ceiling = Ceiling::between(LEAST, MOST).starting_at(initial);
        Self { wiring, estimator: Estimator::new(ceiling), calls: 0, initial }
    }

    fn told(&self, sample: Sample) -> Sample {
        match self.wiring {
            Wiring::HidesUnderUse => Sample { in_flight: sample.allowed, ..sample },
            Wiring::ShareIsWhole => Sample { allowed: self.estimator.limit(), ..sample },
            Wiring::CoarseClock => {
                let tenths = sample.latency.as_millis() as u64 / 100;
                Sample { latency: Duration::from_millis(tenths * 100), ..sample }
            }
            Wiring::QueueUnseen => {
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
        match self.wiring {
            Wiring::CalibratesAtLeast if self.calls % 1_000 > 900 => LEAST,
            Wiring::Frozen => self.initial,
            Wiring::Unbounded if limit < 2 * LEAST => 1,
            _ => limit,
        }
    }

    fn success(&mut self, sample: Sample, now: Timestamp) -> u32 {
        self.calls += 1;
        self.estimator.success(self.told(sample), now);
        self.limit()
    }

    fn dropped(&mut self, sample: Sample, now: Timestamp) -> u32 {
        match self.wiring {
            Wiring::TimeoutIsSuccess => self.success(sample, now),
            Wiring::DropIsFast => self.success(Sample { latency: Duration::from_micros(1), ..sample }, now),
            Wiring::DropsUntold => self.limit(),
            _ => {
                self.estimator.dropped(now);
                self.limit()
            }
        }
    }

    fn ignored(&mut self, _sample: Sample, _now: Timestamp) {}
}

/// Half of the servers go away.
const SMALLER: Step = Step { capacity: 0.5, service: 1.0 };
const SEED: u64 = 3;

fn wired(wiring: Wiring) -> impl Fn(u32) -> Miswired {
    move |initial| Miswired::new(wiring, initial)
}

fn published(faults: Faults, tolerance: f64) -> impl Fn(u32) -> Published {
    move |initial| Published::new(faults, tolerance, initial)
}

fn settles(make: &impl super::laws::Make, service: Service) -> Check {
    settle(make, World::steady(Discipline::Queue, service, 32, 6_000), SEED).check()
}

/// A bug: its name, what the law says of it, and what it says of the same guard without it.
pub type Planted = (&'static str, fn() -> Check, fn() -> Check);

/// The bug in the guard that ships, and that guard wired right, before the same law.
macro_rules! wires {
    ($name:literal, $wiring:ident, $law:expr) => {
        ($name, || $law(&wired(Wiring::$wiring)), || $law(&wired(Wiring::Right)))
    };
}

/// The published rule, and the one that ships, before the same law.
macro_rules! rules {
    ($name:literal, $tolerance:literal, $law:expr) => {
        ($name, || $law(&published(Faults::default(), $tolerance)), || $law(&wired(Wiring::Right)))
    };
}

/// Every bug, with the law that must find it.
pub const PLANTED: [Planted; 15] = [
    wires!("hides_under_use", HidesUnderUse, |make| check_light(make, SEED)),
    wires!("timeout_is_success", TimeoutIsSuccess, |make| check_hang(make, SEED)),
    wires!("drop_is_fast", DropIsFast, |make| check_hang(make, SEED)),
    wires!("drops_untold", DropsUntold, |make| check_hang(make, SEED)),
    wires!("share_is_whole", ShareIsWhole, |make| check_share(make, SEED)),
    wires!("calibrates_at_least", CalibratesAtLeast, |make| check_dips(make, SEED)),
    wires!("frozen", Frozen, |make| check_recovery(make, SMALLER, SEED)),
    wires!("queue_unseen", QueueUnseen, |make| settles(make, Service::Steady)),
    wires!("unbounded", Unbounded, |make| check_dips(make, SEED)),
    wires!("coarse_clock", CoarseClock, |make| settles(make, Service::Jittered)),
    (
        "denials_are_samples",
        || stays_up(Faults { denials_are_samples: true }),
        || stays_up(Faults::default()),
    ),
    wires!("refusal_is_fast", DropIsFast, |make| check_refusals(make, SEED)),
    rules!("published_tolerance", 2.0, |make| settles(make, Service::Steady)),
    // Always above the capacity, so the minimum rises with the queue, and with it the ceiling.
    rules!("never_drains", 1.1, |make| settles(make, Service::Steady)),
    // One sample far below the mean is the minimum.
    rules!("least_of_single_samples", 1.5, |make| settles(make, Service::Wide)),
];

/// The bugs that their laws find, and those they do not.
pub fn examine_planted() -> (Vec<&'static str>, Vec<&'static str>) {
    let (found, missed): (Vec<_>, Vec<_>) = PLANTED.into_iter().partition(|(_, law, _)| law().is_err());
    let names = |of: Vec<Planted>| of.into_iter().map(|(name, ..)| name).collect();
    (names(found), names(missed))
}

/// The bugs whose law also says no without them, and what it says: such a find proves nothing.
pub fn examine_controls() -> Vec<String> {
    let says =
        |(name, _, control): Planted| control().err().map(|story| format!("control of {name}: {story}"));
    PLANTED.into_iter().filter_map(says).collect()
}

/// How many times the first implementation is played: where it ends up saws from 4 to 512 with every denial.
const PLAYS: u64 = 64;

/// Where the first implementation ends up after 5,000 completions of 50 ms from a ceiling of 100 that is always in
/// full use, if so many of a thousand asks are denied elsewhere: the mean over many seeds.
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

/// Law `inference_survives_denials`, where nothing ever queues: denials do not bring a ceiling down.
fn stays_up(faults: Faults) -> Check {
    let last = denied_elsewhere(faults, 50, SEED);
    ensure(last >= 100, || format!("from 100 to {last} by denials"))
}
