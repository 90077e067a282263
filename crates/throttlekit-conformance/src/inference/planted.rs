//! Guards with a deliberate bug, to show that each law can fail: the one that ships, told or heard wrongly, and the
//! published rule with the faults of the first implementation.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Ceiling, Estimator, Sample};

use super::laws::{
    LEAST, MOST, check_denials, check_dips, check_hang, check_light, check_recovery, check_refusals,
    check_share, settle,
};
use super::published::{Faults, Published};
use super::{Discipline, Infers, Service, Step, World};
use crate::Dice;
use crate::check::Check;

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

/// Service times double.
const SLOWER: Step = Step { capacity: 1.0, service: 2.0 };
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

/// A bug, and what the law says of it.
pub type Planted = (&'static str, fn() -> Check);

/// Every bug, with the law that must find it.
pub const PLANTED: [Planted; 18] = [
    ("hides_under_use", || check_light(&wired(Wiring::HidesUnderUse), SEED)),
    ("timeout_is_success", || check_hang(&wired(Wiring::TimeoutIsSuccess), SEED)),
    ("drop_is_fast", || check_hang(&wired(Wiring::DropIsFast), SEED)),
    ("drops_untold", || check_hang(&wired(Wiring::DropsUntold), SEED)),
    ("share_is_whole", || check_share(&wired(Wiring::ShareIsWhole), SEED)),
    ("calibrates_at_least", || check_dips(&wired(Wiring::CalibratesAtLeast), SEED)),
    ("frozen", || check_recovery(&wired(Wiring::Frozen), SMALLER, SEED)),
    ("queue_unseen", || settles(&wired(Wiring::QueueUnseen), Service::Steady)),
    ("unbounded", || check_dips(&wired(Wiring::Unbounded), SEED)),
    ("coarse_clock", || settles(&wired(Wiring::CoarseClock), Service::Jittered)),
    ("published_tolerance", || settles(&published(Faults::default(), 2.0), Service::Steady)),
    // Always above the capacity, so the minimum rises with the queue, and with it the ceiling.
    ("never_drains", || settles(&published(Faults::default(), 1.1), Service::Steady)),
    // One sample far below the mean is the minimum.
    ("least_of_single_samples", || settles(&published(Faults::default(), 1.5), Service::Wide)),
    ("denials_are_samples", || {
        check_denials(&published(Faults { denials_are_samples: true, ..Faults::default() }, 2.0), 50, SEED)
    }),
    ("drops_enter_minimum", || {
        check_refusals(&published(Faults { drops_enter_minimum: true, ..Faults::default() }, 2.0), SEED)
    }),
    ("timeouts_are_samples", || {
        check_hang(&published(Faults { timeouts_are_samples: true, ..Faults::default() }, 2.0), SEED)
    }),
    ("minimum_never_ages", || {
        check_recovery(
            &published(Faults { minimum_never_ages: true, ..Faults::default() }, 1.2),
            SLOWER,
            SEED,
        )
    }),
    ("forgets_the_newest", || {
        check_recovery(
            &published(Faults { forgets_the_newest: true, ..Faults::default() }, 1.2),
            SLOWER,
            SEED,
        )
    }),
];

/// The bugs that their laws find, and those they do not.
pub fn examine_planted() -> (Vec<&'static str>, Vec<&'static str>) {
    let (found, missed): (Vec<_>, Vec<_>) = PLANTED.into_iter().partition(|(_, law)| law().is_err());
    let names = |of: Vec<Planted>| of.into_iter().map(|(name, _)| name).collect();
    (names(found), names(missed))
}

/// Where the first implementation ends up after 5,000 completions of 50 ms from a ceiling of 100 that is always in
/// full use, if so many of a thousand asks are denied elsewhere: the mean of the last thousand.
pub fn first_implementation(denied_per_mille: u64) -> u32 {
    let faults = Faults { denials_are_samples: true, ..Faults::default() };
    let mut guard = Published::new(faults, 2.0, 100);
    let mut dice = Dice::new(SEED);
    let mut last = 0;
    for completion in 0..5_000 {
        let allowed = guard.limit();
        let denied = dice.below(1_000) < denied_per_mille;
        let latency = Duration::from_millis(if denied { 0 } else { super::ALONE_MS });
        let limit = guard.success(Sample { latency, in_flight: allowed, allowed }, Timestamp::EPOCH);
        last += if completion >= 4_000 { limit } else { 0 };
    }
    last / 1_000
}
