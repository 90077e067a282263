//! The arrivals of calls, with their processes and tokens: the same for all contenders.

use std::time::Duration;

use crate::scenario::{CALLS_PER_SECOND, MEASURED, PERIOD, TOKENS_MEAN, WARM_UP};

/// Demand, in thousandths of what the provider serves at first. Callers do not follow a limit that falls.
const DEMAND: u64 = 970;
/// Calls of a period arrive within this time.
const BURST: Duration = Duration::from_secs(1);
/// Every fourth process has this many times the load of the others.
const HEAVY: u64 = 4;

#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Time since the start.
    pub at: Duration,
    pub process: usize,
    pub tokens: u64,
}

/// Returns the calls of all processes, in order.
pub fn all(processes: usize) -> Vec<Arrival> {
    let mut dice = Dice(1);
    let weights: Vec<u64> = (0..processes).map(|process| if process % 4 == 0 { HEAVY } else { 1 }).collect();
    let mut arrivals: Vec<Arrival> = (0..WARM_UP + MEASURED)
        .flat_map(|period| {
            let start = PERIOD * period;
            let calls = CALLS_PER_SECOND * PERIOD.as_secs() * DEMAND / 1_000;
            (0..calls).map(move |_| start)
        })
        .map(|start| Arrival {
            at: start + BURST.mul_f64(dice.unit()),
            process: dice.weighted(&weights),
            tokens: TOKENS_MEAN / 2 + dice.below(TOKENS_MEAN),
        })
        .collect();
    arrivals.sort_by_key(|arrival| arrival.at);
    arrivals
}

/// Random numbers from a seed.
pub struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn unit(&mut self) -> f64 {
        self.next() as f64 / (1_u64 << 31) as f64
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut point = self.below(weights.iter().sum());
        weights
            .iter()
            .position(|weight| {
                let found = point < *weight;
                point = point.saturating_sub(*weight);
                found
            })
            .unwrap_or(0)
    }
}
