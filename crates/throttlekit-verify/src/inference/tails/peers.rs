//! Published rules, written from their description in the concurrency-limits project (commit 78a74b9), and a fixed number.
//!
//! The constants are that project's defaults, and each rule observes every call, as its class does on its
//! own. One thing is ours: they all stay between [`LEAST`] and [`MOST`], as our ceiling does. Their own
//! minimum of 20 would be the whole answer for 8 servers, and their maximum of 200 for 128.

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::Sample;

use super::super::Infers;
use super::super::invariants::{LEAST, MOST};
use super::{Outcome, Scenario, run};
use throttlekit_conformance::Dice;

/// A rule to compare with: its name, and a function that runs it in a scenario.
pub type Peer = (&'static str, fn(Scenario, u64) -> Outcome);

/// The published rules.
pub const PEERS: [Peer; 3] = [
    ("gradient2", |scenario, seed| run(&mut Gradient2Limit::default(), scenario, seed)),
    ("vegas", |scenario, seed| run(&mut VegasLimit::new(seed), scenario, seed)),
    ("aimd", |scenario, seed| run(&mut AimdLimit::default(), scenario, seed)),
];

const INITIAL: f64 = 20.0;

fn bounded(limit: f64) -> f64 {
    limit.clamp(f64::from(LEAST), f64::from(MOST))
}

/// A constant ceiling.
#[derive(Clone, Copy, Debug)]
pub struct Fixed(pub u32);

impl Infers for Fixed {
    fn limit(&self) -> u32 {
        self.0
    }
    fn success(&mut self, _sample: Sample, _now: Timestamp) -> u32 {
        self.0
    }
    fn dropped(&mut self, _sample: Sample, _now: Timestamp) -> u32 {
        self.0
    }
    fn ignored(&mut self, _sample: Sample, _now: Timestamp) {}
}

/// `Gradient2Limit`: the latency of a call relative to its long-term average.
#[derive(Clone, Debug)]
pub struct Gradient2Limit {
    limit: f64,
    long_rtt: f64,
    samples: f64,
}

const TOLERANCE: f64 = 1.5;
const SMOOTHING: f64 = 0.2;
const QUEUE_SIZE: f64 = 4.0;
const LONG_WINDOW: f64 = 600.0;
const LONG_WARM_UP: f64 = 10.0;
const LONG_DRIFT: f64 = 0.95;

impl Default for Gradient2Limit {
    fn default() -> Self {
        Self { limit: INITIAL, long_rtt: 0.0, samples: 0.0 }
    }
}

impl Gradient2Limit {
    /// Follows the average: a plain one at first, then an exponential one.
    fn follow(&mut self, rtt: f64) -> f64 {
        self.samples = (self.samples + 1.0).min(LONG_WARM_UP + 1.0);
        let gain = if self.samples <= LONG_WARM_UP { 1.0 / self.samples } else { 2.0 / (LONG_WINDOW + 1.0) };
        self.long_rtt += (rtt - self.long_rtt) * gain;
        self.long_rtt
    }

    fn update(&mut self, rtt: f64, in_flight: f64) {
        let long_rtt = self.follow(rtt);
        if long_rtt > 2.0 * rtt {
            self.long_rtt *= LONG_DRIFT;
        }
        if in_flight < self.limit / 2.0 {
            return;
        }
        let gradient = (TOLERANCE * long_rtt / rtt).clamp(0.5, 1.0);
        let next = self.limit * gradient + QUEUE_SIZE;
        self.limit = bounded(self.limit * (1.0 - SMOOTHING) + next * SMOOTHING);
    }
}

impl Infers for Gradient2Limit {
    fn limit(&self) -> u32 {
        self.limit as u32
    }
    fn success(&mut self, sample: Sample, _now: Timestamp) -> u32 {
        self.update(sample.latency.as_secs_f64(), f64::from(sample.in_flight));
        self.limit()
    }
    fn dropped(&mut self, sample: Sample, now: Timestamp) -> u32 {
        self.success(sample, now)
    }
    fn ignored(&mut self, _sample: Sample, _now: Timestamp) {}
}

/// `VegasLimit`: the number of queued calls, from the minimum latency since the last probe.
#[derive(Clone, Debug)]
pub struct VegasLimit {
    limit: f64,
    no_load: Option<f64>,
    probe_count: f64,
    jitter: f64,
    dice: Dice,
}

const PROBE_MULTIPLIER: f64 = 30.0;

impl VegasLimit {
    /// Creates the rule. The seed is for its random probes.
    pub fn new(seed: u64) -> Self {
        let mut vegas =
            Self { limit: INITIAL, no_load: None, probe_count: 0.0, jitter: 0.0, dice: Dice::new(seed) };
        vegas.reset_probe();
        vegas
    }

    fn reset_probe(&mut self) {
        self.probe_count = 0.0;
        self.jitter = 0.5 + self.dice.below(1_000) as f64 / 2_000.0;
    }

    fn update(&mut self, rtt: f64, in_flight: f64) {
        self.probe_count += 1.0;
        if self.jitter * PROBE_MULTIPLIER * self.limit <= self.probe_count {
            self.reset_probe();
            self.no_load = Some(rtt);
            return;
        }
        match self.no_load {
            Some(no_load) if no_load <= rtt => {
                self.follow((self.limit * (1.0 - no_load / rtt)).ceil(), in_flight);
            }
            _ => self.no_load = Some(rtt),
        }
    }

    fn follow(&mut self, queue: f64, in_flight: f64) {
        if 2.0 * in_flight < self.limit {
            return;
        }
        let log = self.limit.trunc().log10().trunc().max(1.0);
        let (alpha, beta) = (3.0 * log, 6.0 * log);
        let by = match queue {
            _ if queue <= log => beta,
            _ if queue < alpha => log,
            _ if queue > beta => -log,
            _ => 0.0,
        };
        self.limit = bounded(self.limit + by);
    }
}

impl Infers for VegasLimit {
    fn limit(&self) -> u32 {
        self.limit as u32
    }
    fn success(&mut self, sample: Sample, _now: Timestamp) -> u32 {
        self.update(sample.latency.as_secs_f64(), f64::from(sample.in_flight));
        self.limit()
    }
    fn dropped(&mut self, _sample: Sample, _now: Timestamp) -> u32 {
        self.limit()
    }
    fn ignored(&mut self, _sample: Sample, _now: Timestamp) {}
}

/// `AIMDLimit`: one more for a call in time, a tenth less for one beyond the timeout of five seconds. That is
/// five times the mean service time here.
#[derive(Clone, Debug)]
pub struct AimdLimit {
    limit: f64,
}

const TIMEOUT_SECONDS: f64 = 5.0;
const BACK_OFF: f64 = 0.9;

impl Default for AimdLimit {
    fn default() -> Self {
        Self { limit: INITIAL }
    }
}

impl Infers for AimdLimit {
    fn limit(&self) -> u32 {
        self.limit as u32
    }
    fn success(&mut self, sample: Sample, now: Timestamp) -> u32 {
        if sample.latency.as_secs_f64() > TIMEOUT_SECONDS {
            return self.dropped(sample, now);
        }
        if f64::from(2 * sample.in_flight) >= self.limit {
            self.limit = bounded(self.limit + 1.0);
        }
        self.limit()
    }
    fn dropped(&mut self, _sample: Sample, _now: Timestamp) -> u32 {
        self.limit = bounded((self.limit * BACK_OFF).trunc());
        self.limit()
    }
    fn ignored(&mut self, _sample: Sample, _now: Timestamp) {}
}
