//! One scenario: Poisson arrivals, a guard, a FIFO queue behind it, and servers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::Sample;

use super::super::Infers;
use super::super::service::unit;
use super::Shape;
use throttlekit_conformance::Dice;

/// The loads, as parts of the servers' capacity.
pub const LOADS: [f64; 4] = [0.5, 0.8, 1.0, 1.5];
/// The numbers of servers.
pub const SERVERS: [u32; 3] = [8, 32, 128];
/// The mean service time, which is also the maximum wait in the queue to count as goodput.
pub const WAIT_MAX: Duration = Duration::from_secs(1);
const SECOND: f64 = 1e9;

/// A backend under a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scenario {
    /// The service times.
    pub shape: Shape,
    /// Arrivals as a part of the servers' capacity.
    pub load: f64,
    /// The number of calls that are served concurrently.
    pub servers: u32,
    /// Arrivals before anything is counted.
    pub warm_up: u32,
    /// Arrivals that are counted.
    pub judged: u32,
    /// The calls per thousand that release their slot unused.
    pub ignored_per_mille: u64,
    /// The factor of service times from the middle of the warm-up on.
    pub slows_by: f64,
}

/// The measurements of the counted arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Calls that waited at most [`WAIT_MAX`] in the queue, per second and server.
    pub goodput: f64,
    /// The share of arrivals that was admitted.
    pub admitted: f64,
    /// The 99th percentile of wait and service, in seconds.
    pub p99: f64,
    /// The mean wait in the queue, in seconds.
    pub wait: f64,
    /// The mean ceiling at arrivals.
    pub limit: f64,
}

impl Scenario {
    /// Creates a scenario with a constant backend.
    pub const fn new(shape: Shape, load: f64, servers: u32, (warm_up, judged): (u32, u32)) -> Self {
        Self { shape, load, servers, warm_up, judged, ignored_per_mille: 0, slows_by: 1.0 }
    }
}

/// Runs a scenario on a guard. The same seed gives the same arrivals and service times to every guard.
pub fn run<I: Infers>(infers: &mut I, scenario: Scenario, seed: u64) -> Outcome {
    let mut backend = Backend::new(scenario.servers);
    let (mut arrivals, mut services) = (Dice::new(seed), Dice::new(!seed));
    let mut counted = Counted::default();
    let rate = scenario.load * f64::from(scenario.servers);
    let mut now = SECOND;
    for arrival in 0..scenario.warm_up + scenario.judged {
        now -= SECOND * (1.0 - unit(&mut arrivals)).ln() / rate;
        let slows = if 2 * arrival >= scenario.warm_up { scenario.slows_by } else { 1.0 };
        let service = SECOND * slows * scenario.shape.draw(&mut services);
        let ignored = services.below(1_000) < scenario.ignored_per_mille;
        backend.end_until(now as u64, infers);
        let limit = infers.limit();
        let judged = arrival >= scenario.warm_up;
        if judged {
            counted.arrive(now, limit);
        }
        if backend.in_flight() >= limit {
            continue;
        }
        if ignored {
            let sample =
                Sample { latency: Duration::ZERO, in_flight: backend.in_flight() + 1, allowed: limit };
            infers.ignored(sample, Timestamp::from_nanos(now as u64));
            continue;
        }
        let wait = backend.admit(now, service, limit);
        if judged {
            counted.admit(wait, service);
        }
    }
    counted.outcome(now, scenario.servers)
}

/// Servers that take calls in the order of their admission.
struct Backend {
    /// The time at which each server is free, the earliest first.
    free: BinaryHeap<Reverse<u64>>,
    /// Calls in flight by their end.
    ends: BinaryHeap<Reverse<(u64, Call)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    begun: u64,
    in_flight: u32,
    allowed: u32,
}

impl Backend {
    fn new(servers: u32) -> Self {
        Self { free: (0..servers).map(|_| Reverse(0)).collect(), ends: BinaryHeap::new() }
    }

    fn in_flight(&self) -> u32 {
        self.ends.len() as u32
    }

    /// Admits a call. Returns its wait in nanoseconds.
    fn admit(&mut self, now: f64, service: f64, allowed: u32) -> f64 {
        let begun = now as u64;
        let call = Call { begun, in_flight: self.in_flight() + 1, allowed };
        let mut free = self.free.peek_mut().expect("there is a server");
        let starts = free.0.max(begun);
        free.0 = starts + service as u64;
        self.ends.push(Reverse((free.0, call)));
        (starts - begun) as f64
    }

    fn end_until(&mut self, now: u64, infers: &mut impl Infers) {
        while let Some(&Reverse((at, call))) = self.ends.peek()
            && at <= now
        {
            self.ends.pop();
            let latency = Duration::from_nanos(at - call.begun);
            let Call { in_flight, allowed, .. } = call;
            infers.success(Sample { latency, in_flight, allowed }, Timestamp::from_nanos(at));
        }
    }
}

#[derive(Default)]
struct Counted {
    begun: Option<f64>,
    arrived: f64,
    limits: f64,
    good: f64,
    waits: f64,
    latencies: Vec<f64>,
}

impl Counted {
    fn arrive(&mut self, now: f64, limit: u32) {
        self.begun.get_or_insert(now);
        self.arrived += 1.0;
        self.limits += f64::from(limit);
    }

    fn admit(&mut self, wait: f64, service: f64) {
        self.good += f64::from(wait <= WAIT_MAX.as_nanos() as f64);
        self.waits += wait;
        self.latencies.push(wait + service);
    }

    fn outcome(mut self, now: f64, servers: u32) -> Outcome {
        let lasted = (now - self.begun.unwrap_or(now)) / SECOND * f64::from(servers);
        let admitted = self.latencies.len() as f64;
        let p99 = (self.latencies.len() * 99 / 100).min(self.latencies.len().saturating_sub(1));
        let p99 = match self.latencies.is_empty() {
            true => 0.0,
            false => *self.latencies.select_nth_unstable_by(p99, f64::total_cmp).1 / SECOND,
        };
        Outcome {
            goodput: self.good / lasted,
            admitted: admitted / self.arrived,
            p99,
            wait: self.waits / admitted.max(1.0) / SECOND,
            limit: self.limits / self.arrived,
        }
    }
}
