//! A closed loop: callers, a guard whose ceiling is inferred, and a backend whose best ceiling is known.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Ending, Sample};

use super::backend::{Backend, Work};
use super::service::normal;
use super::{Discipline, Infers, Service};
use throttlekit_conformance::Dice;

/// How long a call takes at first if it need not wait, on average.
pub const ALONE_MS: u64 = 50;
const ALONE_NS: f64 = (ALONE_MS * 1_000_000) as f64;
/// How long a refusal takes.
const REFUSAL_NS: u64 = 1_000_000;

/// What a guard has to cope with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scenario {
    /// How the backend shares what it has.
    pub discipline: Discipline,
    /// How long calls take.
    pub service: Service,
    /// How many the backend takes at a time: the best ceiling.
    pub capacity: u32,
    /// What changes, and after how many completions.
    pub step: Option<(u64, Step)>,
    /// Of a thousand asks, how many another axis denies once they have their slot.
    pub denied_per_mille: u64,
    /// How many callers there are at most; without, always more than the ceiling.
    pub callers: Option<u32>,
    /// After how many times the mean service a caller gives up.
    pub timeout: Option<f64>,
    /// Who comes while so many are at the backend is refused within a millisecond.
    pub refuses_beyond: Option<u32>,
    /// The guard is told of one call in so many, and of that part of what is in flight and allowed, as a node of a
    /// fleet is.
    pub nodes: u32,
    /// What has nothing to do with load.
    pub disturbance: Disturbance,
    /// How many completions are played.
    pub completions: u64,
}

/// What a backend suffers from that no ceiling can change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// The deviation, in logarithms, of a factor that all calls of a while have in common, as of a busy machine.
    pub drift: f64,
    /// Of a thousand calls, how many take [`OUTLIER`] times as long.
    pub outliers_per_mille: u64,
    /// Of a thousand calls, how many are done and yet fail.
    pub failures_per_mille: u64,
}

/// How long an outlier takes, times any other call.
pub const OUTLIER: f64 = 6.0;
/// For how many calls the common factor stays about the same.
const DRIFT_CALLS: f64 = 50.0;

/// What changes from one call to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The capacity is multiplied by this.
    pub capacity: f64,
    /// The service time is multiplied by this.
    pub service: f64,
}

impl Scenario {
    /// A backend that does not change, with callers in plenty.
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

    /// The best ceiling once everything has happened.
    pub fn best(&self) -> f64 {
        f64::from(self.step.map_or(self.capacity, |(_, step)| scaled(self.capacity, step.capacity)))
    }

    /// The mean service time once everything has happened.
    pub fn alone_ns(&self) -> f64 {
        ALONE_NS * self.step.map_or(1.0, |(_, step)| step.service)
    }
}

fn scaled(capacity: u32, by: f64) -> u32 {
    (f64::from(capacity) * by).round() as u32
}

/// What a completion saw.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// When it was.
    pub at_ns: u64,
    /// How long the call took.
    pub latency_ns: u64,
    /// How it ended.
    pub ending: Ending,
    /// The ceiling right after it.
    pub limit: u32,
}

struct Call {
    begun_ns: u64,
    in_flight: u32,
    allowed: u32,
}

/// Plays a scenario to a guard.
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
    /// Who gives up or is refused when; all wait equally long, so in this order.
    patience: VecDeque<(u64, u64)>,
    now_ns: u64,
    named: u64,
    stretch: f64,
    /// The common factor of now, in logarithms.
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

    /// How long the next call takes; the mean is 1 under any disturbance.
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

    /// A call that its caller has left ends unseen.
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
