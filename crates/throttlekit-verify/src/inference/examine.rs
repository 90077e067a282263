//! The invariants over many scenarios, and what they measured.

use std::time::Duration;

use throttlekit_core::concurrency::{Ceiling, Estimator};

use super::invariants::{
    LEAST, MOST, Make, check_denials, check_dips, check_hang, check_light, check_refusals, check_share,
    check_timeouts, recover, settle,
};
use super::judge::{NEAR_SHARE, RECOVERY_BAR, RUNAWAY_BAR, Stretch, THROUGHPUT_BAR};
use super::{Discipline, SERVICES, Scenario, Service, Step};
use throttlekit_conformance::check::{Check, ensure};

/// The capacities that are judged.
pub const CAPACITIES: [u32; 6] = [10, 16, 24, 32, 48, 64];
/// Those that are only told.
pub const LARGE: [u32; 3] = [100, 200, 400];
/// Which part of the scenarios of a shape must recover within the bar, over all steps that are judged. All of them is
/// what we want; this is what was seen of other seeds when the bar was set, less a margin.
pub const RECOVERED_SHARE: f64 = 0.85;
/// The same of each step.
const STEP_SHARE: f64 = 0.75;
/// Scenarios are examined with seeds from here on, which no constant was chosen by.
pub const HELD_OUT: u64 = 2_000_000;
pub(super) const DISCIPLINES: [Discipline; 2] = [Discipline::Queue, Discipline::Sharing];

/// The steps: name, and what changes.
pub const STEPS: [(&str, Step); 7] = [
    ("capacity halves", Step { capacity: 0.5, service: 1.0 }),
    ("capacity doubles", Step { capacity: 2.0, service: 1.0 }),
    ("capacity ×1.5", Step { capacity: 1.5, service: 1.0 }),
    ("latency doubles", Step { capacity: 1.0, service: 2.0 }),
    ("latency halves", Step { capacity: 1.0, service: 0.5 }),
    ("half the capacity, twice the latency", Step { capacity: 0.5, service: 2.0 }),
    ("twice the capacity, half the latency", Step { capacity: 2.0, service: 0.5 }),
];

/// The guard that ships, with bounds from 4 to 512.
pub fn shipped(initial: u32) -> Estimator {
    Estimator::new(Ceiling::between(LEAST, MOST).starting_at(initial))
}

/// How much to examine.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Seeds of each shape and capacity.
    pub seeds: u64,
    /// Completions that are judged once it has settled.
    pub completions: u64,
}

/// How a shape of backend settled, over all capacities and seeds.
#[derive(Clone, Debug)]
pub struct Settling {
    /// How the backend shares.
    pub discipline: Discipline,
    /// How long calls take.
    pub service: Service,
    /// Every stretch.
    pub stretches: Vec<Stretch>,
}

/// How one kind of step was recovered from, over all capacities and seeds.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// How long calls take.
    pub service: Service,
    /// Which step.
    pub step: &'static str,
    /// After how many completions each time, rising; `None` is not within ten times the bar.
    pub took: Vec<Option<u64>>,
}

/// A large capacity.
#[derive(Clone, Debug)]
pub struct Large {
    /// How many the backend takes at a time.
    pub capacity: u32,
    /// How it settled.
    pub stretch: Stretch,
    /// After how many completions half of the scenarios had recovered from each step.
    pub medians: Vec<(&'static str, Option<u64>)>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// How many scenarios were played.
    pub scenarios: u64,
    /// Of each shape.
    pub settling: Vec<Settling>,
    /// Of each shape and step.
    pub recovery: Vec<Recovery>,
    /// What does not hold.
    pub violations: Vec<String>,
}

/// Every invariant over every shape, for whatever infers a ceiling.
pub fn examine(make: &impl Make, size: Size) -> Findings {
    let mut found = Findings::default();
    for discipline in DISCIPLINES {
        SERVICES.iter().for_each(|service| found.settle(make, discipline, *service, size));
    }
    for service in SERVICES {
        STEPS.iter().for_each(|(name, step)| found.recover(make, service, (name, *step), size));
        found.recovered(service);
    }
    for seed in HELD_OUT..HELD_OUT + size.seeds {
        for per_mille in [10, 50, 100, 200] {
            found.note("denials", check_denials(make, per_mille, seed));
        }
        for initial in [LEAST, 64, MOST] {
            found.note("timeouts", check_timeouts(make, initial, seed));
        }
        found.note("a hang", check_hang(make, seed));
        found.note("refusals", check_refusals(make, seed));
        found.note("light demand", check_light(make, seed));
        found.note("a share", check_share(make, seed));
        found.note("dips", check_dips(make, seed));
        found.note("recalibration", check_dips(&recalibrating, seed));
    }
    found
}

/// The same guard with recalibration, often.
fn recalibrating(initial: u32) -> Estimator {
    let ceiling = Ceiling::between(LEAST, MOST).starting_at(initial);
    Estimator::new(ceiling.recalibrate_every(Duration::from_secs(1)))
}

/// Large capacities, where a round is longer than the bar: how they settle, and how many completions and rounds half
/// of the recoveries from each step take.
pub fn examine_large(make: &impl Make, size: Size) -> Vec<Large> {
    let row = |capacity: u32| {
        let scenario = Scenario::steady(Discipline::Queue, Service::Jittered, capacity, size.completions * 4);
        let stretch = settle(make, scenario, 1);
        let median = |step: Step| {
            let mut took: Vec<_> = (HELD_OUT..HELD_OUT + size.seeds)
                .map(|seed| recover(make, scenario, step, seed, 20 * u64::from(capacity)))
                .map(|took| took.unwrap_or(u64::MAX))
                .collect();
            took.sort_unstable();
            took.get(took.len() / 2).copied().filter(|took| *took < u64::MAX)
        };
        // Twice the largest is above the most.
        let fits = |step: &Step| f64::from(capacity) * step.capacity <= f64::from(MOST);
        let steps = STEPS.iter().filter(|(_, step)| fits(step));
        Large { capacity, stretch, medians: steps.map(|(name, step)| (*name, median(*step))).collect() }
    };
    LARGE.into_iter().map(row).collect()
}

impl Findings {
    fn settle(&mut self, make: &impl Make, discipline: Discipline, service: Service, size: Size) {
        let mut stretches = Vec::new();
        for capacity in CAPACITIES {
            for seed in HELD_OUT..HELD_OUT + size.seeds {
                let scenario = Scenario::steady(discipline, service, capacity, size.completions);
                let stretch = settle(make, scenario, seed);
                if service.settling_is_judged() {
                    let which = format!("{discipline:?} {service:?} of {capacity}, seed {seed}");
                    self.note(&which, stretch.check());
                }
                let which = format!("{discipline:?} {service:?} of {capacity}, seed {seed}");
                let tame = ensure(stretch.mean <= RUNAWAY_BAR, || format!("ran away to {:.2}", stretch.mean));
                self.note(&which, tame);
                stretches.push(stretch);
            }
        }
        self.scenarios += stretches.len() as u64;
        let mean = stretches.iter().map(|stretch| stretch.throughput).sum::<f64>() / stretches.len() as f64;
        if service.settling_is_judged() {
            let enough = ensure(mean >= THROUGHPUT_BAR, || format!("throughput {mean:.3} on average"));
            self.note(&format!("{discipline:?} {service:?}"), enough);
            let near = stretches.iter().map(|stretch| stretch.near).sum::<f64>() / stretches.len() as f64;
            let enough = ensure(near >= NEAR_SHARE, || format!("near the best only {near:.2} of the time"));
            self.note(&format!("{discipline:?} {service:?}"), enough);
        }
        self.settling.push(Settling { discipline, service, stretches });
    }

    fn recover(&mut self, make: &impl Make, service: Service, step: (&'static str, Step), size: Size) {
        let mut took = Vec::new();
        for discipline in DISCIPLINES {
            for capacity in CAPACITIES.into_iter().filter(|from| stays_judged(*from, step.1)) {
                let scenario = Scenario::steady(discipline, service, capacity, 0);
                let seeds = HELD_OUT..HELD_OUT + size.seeds;
                took.extend(seeds.map(|seed| recover(make, scenario, step.1, seed, 10 * RECOVERY_BAR)));
            }
        }
        took.sort_unstable_by_key(|took| took.unwrap_or(u64::MAX));
        self.scenarios += took.len() as u64;
        let recovery = Recovery { service, step: step.0, took };
        if recovery.is_judged() {
            self.note(&format!("{service:?}, {}", step.0), recovery.check());
        }
        self.recovery.push(recovery);
    }

    /// Invariant `inference_recovers`: [`RECOVERED_SHARE`] of the scenarios within the bar, over all steps.
    fn recovered(&mut self, service: Service) {
        let rows = self.recovery.iter().filter(|row| row.service == service && row.is_judged());
        let took: Vec<_> = rows.flat_map(|row| row.took.iter().copied()).collect();
        let within = took.iter().filter(|took| took.is_some_and(|took| took <= RECOVERY_BAR)).count();
        let enough = within as f64 >= least_of(took.len(), RECOVERED_SHARE);
        let told = || format!("{within} of {} recovered within {RECOVERY_BAR}", took.len());
        self.note(&format!("{service:?}, every step"), ensure(enough, told));
    }

    fn note(&mut self, of: &str, check: Check) {
        self.scenarios += 1;
        self.violations.extend(check.err().map(|counterexample| format!("{of}: {counterexample}")));
    }
}

/// Both the old and the new capacity are among those that are judged.
fn stays_judged(from: u32, step: Step) -> bool {
    let to = f64::from(from) * step.capacity;
    (f64::from(CAPACITIES[0])..=f64::from(CAPACITIES[5])).contains(&to)
}

/// How many of so many scenarios make up this share, less twice the deviation of chance: a few scenarios prove little.
fn least_of(scenarios: usize, share: f64) -> f64 {
    let scenarios = scenarios as f64;
    scenarios * share - 2.0 * (scenarios * share * (1.0 - share)).sqrt()
}

impl Recovery {
    /// Where times vary little. Four times the throughput at once takes longer than the bar, and is told.
    pub fn is_judged(&self) -> bool {
        self.service.recovery_is_judged() && self.step != STEPS[STEPS.len() - 1].0
    }

    /// Which part of the scenarios recovered within the bar.
    pub fn within_bar(&self) -> f64 {
        let within = self.took.iter().filter(|took| took.is_some_and(|took| took <= RECOVERY_BAR)).count();
        within as f64 / self.took.len() as f64
    }

    /// After how many completions this part of the scenarios had recovered.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        self.took[((self.took.len() as f64 * part) as usize).min(self.took.len() - 1)]
    }

    /// Invariant `inference_recovers`: [`STEP_SHARE`] of the scenarios within the bar, for each step.
    fn check(&self) -> Check {
        let (within, scenarios) = (self.within_bar(), self.took.len());
        ensure(within * scenarios as f64 >= least_of(scenarios, STEP_SHARE), || {
            format!("only {within:.2} recovered within {RECOVERY_BAR}")
        })
    }
}
