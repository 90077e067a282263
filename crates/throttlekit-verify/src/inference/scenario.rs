//! A closed loop: callers, a guard with an inferred ceiling, and a backend whose best ceiling is known.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Ending, Sample};

use super::backend::{Backend, Work};
use super::service::normal;
use super::{Discipline, Infers, Service};
use throttlekit_conformance::Dice;

/// The initial mean duration of a call without waiting.
pub const ALONE_MS: u64 = 50;
const ALONE_NS: f64 = (ALONE_MS * 1_000_000) as f64;
/// The duration of a refusal.
const REFUSAL_NS: u64 = 1_000_000;

/// The conditions of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scenario {
    /// The discipline of the backend.
    pub discipline: Discipline,
    /// The service times.
    pub service: Service,
    /// The best concurrency of the backend: the best ceiling.
    pub capacity: u32,
    /// A change, and the number of completions after which it happens.
    pub step: Option<(u64, Step)>,
    /// The requests per thousand that another axis denies after they have acquired their slot.
    pub denied_per_mille: u64,
    /// The maximum number of callers. Without, always more than the ceiling.
    pub callers: Option<u32>,
    /// The timeout of a caller, as a multiple of the mean service time.
    pub timeout: Option<f64>,
    /// A call is refused within a millisecond while this many are at the backend.
    pub refuses_beyond: Option<u32>,
    /// The guard observes one call in `nodes`, and the same part of the number in flight and allowed, like
    /// one of several nodes.
    pub nodes: u32,
    /// Disturbances unrelated to load.
    pub disturbance: Disturbance,
    /// The number of completions.
    pub completions: u64,
}

/// Disturbances of a backend that no ceiling can change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// The deviation, in logarithms, of a factor that is common to all calls for a while, as on a busy
    /// machine.
    pub drift: f64,
    /// The calls per thousand that take [`OUTLIER`] times as long.
    pub outliers_per_mille: u64,
    /// The calls per thousand that are done and yet fail.
    pub failures_per_mille: u64,
}

/// The duration of an outlier, as a multiple of any other call's.
pub const OUTLIER: f64 = 6.0;
/// The number of calls for which the common factor stays about the same.
const DRIFT_CALLS: f64 = 50.0;

/// A change between two calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The factor of the capacity.
    pub capacity: f64,
    /// The factor of the service time.
    pub service: f64,
}

impl Scenario {
    /// Creates a scenario with a constant backend and unlimited callers.
    pub fn steady(discipline: Discipline, service: Service, capacity: u32, completions: u64) -> Self {
        Self {
            discipline,
            service,
            capacity,
            step: None,
            denied_per_mille: 0,
            callers: None,
            timeout: None,
            refuses_beyond: None,
            nodes: 1,
            disturbance: Disturbance::default(),
            completions,
        }
    }

    /// Returns the best ceiling after all changes.
    pub fn best(&self) -> f64 {
        f64::from(self.step.map_or(self.capacity, |(_, step)| scaled(self.capacity, step.capacity)))
    }

    /// Returns the mean service time after all changes.
    pub fn alone_ns(&self) -> f64 {
        ALONE_NS * self.step.map_or(1.0, |(_, step)| step.service)
    }
}

fn scaled(capacity: u32, by: f64) -> u32 {
    (f64::from(capacity) * by).round() as u32
}

/// One completion.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Its time.
    pub at_ns: u64,
    /// The latency of the call.
    pub latency_ns: u64,
    /// Its outcome.
    pub ending: Ending,
    /// The ceiling right after it.
    pub limit: u32,
}

struct Call {
    begun_ns: u64,
    in_flight: u32,
    allowed: u32,
}

/// Runs a scenario on a guard.
pub fn play<I: Infers>(infers: &mut I, scenario: Scenario, seed: u64) -> Vec<Point> {
    let mut play = Play::new(infers, scenario, seed);
    while (play.points.len() as u64) < scenario.completions {
        play.change();
        play.fill();
        play.advance();
    }
    play.points
}

struct Play<'a, I> {
    infers: &'a mut I,
    scenario: Scenario,
    dice: Dice,
    backend: Backend,
    calls: HashMap<u64, Call>,
    /// Calls that will time out or be refused; all wait equally long, so in this order.
    patience: VecDeque<(u64, u64)>,
    now_ns: u64,
    named: u64,
    stretch: f64,
    /// The current common factor, in logarithms.
    drift: f64,
    points: Vec<Point>,
}

impl<'a, I: Infers> Play<'a, I> {
    fn new(infers: &'a mut I, scenario: Scenario, seed: u64) -> Self {
        Self {
            infers,
            scenario,
            dice: Dice::new(seed),
            backend: Backend::new(scenario.discipline, scenario.capacity),
            calls: HashMap::new(),
            patience: VecDeque::new(),
            now_ns: 1_000_000_000,
            named: 0,
            stretch: 1.0,
            drift: 0.0,
            points: Vec::with_capacity(scenario.completions as usize),
        }
    }

    fn change(&mut self) {
        if let Some((at, step)) = self.scenario.step
            && at == self.points.len() as u64
        {
            self.stretch = step.service;
            self.backend.set_capacity(scaled(self.scenario.capacity, step.capacity), self.now_ns);
        }
    }

    fn fill(&mut self) {
        let allowed = self.infers.limit();
        let wanted = allowed.min(self.scenario.callers.unwrap_or(u32::MAX));
        while (self.calls.len() as u32) < wanted {
            let in_flight = self.calls.len() as u32 + 1;
            if self.dice.below(1_000) < self.scenario.denied_per_mille {
                self.infers.ignored(Sample { latency: Duration::ZERO, in_flight, allowed }, self.now());
                if self.infers.limit() != allowed {
                    return self.fill();
                }
                continue;
            }
            self.admit(in_flight, allowed);
        }
    }

    fn admit(&mut self, in_flight: u32, allowed: u32) {
        self.named += 1;
        self.calls.insert(self.named, Call { begun_ns: self.now_ns, in_flight, allowed });
        let alone_ns = (ALONE_NS * self.stretch * self.draw()).max(1.0);
        if self.scenario.refuses_beyond.is_some_and(|room| self.backend.len() >= room as usize) {
            self.patience.push_back((self.now_ns + REFUSAL_NS, self.named));
            return;
        }
        self.backend.arrive(Work { call: self.named, alone_ns }, self.now_ns);
        if let Some(times) = self.scenario.timeout {
            self.patience.push_back((self.now_ns + (ALONE_NS * times) as u64, self.named));
        }
    }

    /// Draws the duration of the next call; the mean is 1 under any disturbance.
    fn draw(&mut self) -> f64 {
        let Disturbance { drift, outliers_per_mille, .. } = self.scenario.disturbance;
        let mut takes = self.scenario.service.draw(&mut self.dice);
        if drift > 0.0 {
            let stays = (-1.0 / DRIFT_CALLS).exp();
            self.drift = stays * self.drift + (1.0 - stays * stays).sqrt() * drift * normal(&mut self.dice);
            takes *= (self.drift - drift * drift / 2.0).exp();
        }
        if outliers_per_mille > 0 {
            let outlier = self.dice.below(1_000) < outliers_per_mille;
            takes *= if outlier { OUTLIER } else { 1.0 };
            takes /= 1.0 + (OUTLIER - 1.0) * outliers_per_mille as f64 / 1_000.0;
        }
        takes
    }

    fn advance(&mut self) {
        while self.patience.front().is_some_and(|(_, call)| !self.calls.contains_key(call)) {
            self.patience.pop_front();
        }
        let done = self.backend.next_done_ns().unwrap_or(u64::MAX);
        match self.patience.front() {
            Some(&(gives_up_ns, call)) if gives_up_ns < done => {
                self.now_ns = gives_up_ns;
                self.backend.abandon(call);
                self.end(call, Ending::Dropped);
            }
            _ => {
                self.now_ns = done;
                let call = self.backend.finish(done);
                let fails = self.scenario.disturbance.failures_per_mille;
                let failed = fails > 0 && self.dice.below(1_000) < fails;
                self.end(call, if failed { Ending::Dropped } else { Ending::Success });
            }
        }
    }

    /// Ends a call. One whose caller gave up ends unobserved.
    fn end(&mut self, call: u64, ending: Ending) {
        let Some(Call { begun_ns, in_flight, allowed }) = self.calls.remove(&call) else { return };
        let latency_ns = self.now_ns - begun_ns;
        let [in_flight, allowed] = [in_flight, allowed].map(|of_all| of_all.div_ceil(self.scenario.nodes));
        let sample = Sample { latency: Duration::from_nanos(latency_ns), in_flight, allowed };
        let limit = match ending {
            _ if !call.is_multiple_of(u64::from(self.scenario.nodes)) => self.infers.limit(),
            Ending::Success => self.infers.success(sample, self.now()),
            _ => self.infers.dropped(sample, self.now()),
        };
        self.points.push(Point { at_ns: self.now_ns, latency_ns, ending, limit });
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now_ns)
    }
}
