//! An adaptive guard before a queue whose service times vary by more than their mean: below saturation it
//! admits about what a fixed guard admits, for any seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use throttlekit::clock::ManualClock;
use throttlekit::guard::GuardPermit;
use throttlekit::rate::Timestamp;
use throttlekit::{Concurrency, Guard};

const MEAN_NS: f64 = 10_000_000.0;
const START_NS: u64 = 1_000_000_000_000;
const ARRIVALS: u32 = 60_000;
const WARM_UP: u32 = 20_000;

struct Dice(u64);

impl Dice {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Nine calls in ten take 0.3 of the mean and one takes 7.3 of it: the coefficient of variation is 2.1.
    fn bimodal(&mut self) -> f64 {
        if self.unit() < 0.9 { 0.3 } else { 7.3 }
    }
}

/// Returns the share of Poisson arrivals at `load` that a guard before `servers` servers admits, after a
/// warm-up.
fn admitted(limit: impl Into<Concurrency>, servers: usize, load: f64, seed: u64) -> f64 {
    let (mut dice, clock) = (Dice(seed), ManualClock::at(Timestamp::from_nanos(START_NS)));
    let guard = Guard::builder(limit).clock(clock.clone()).build().unwrap();
    let mut free: BinaryHeap<Reverse<u64>> = (0..servers).map(|_| Reverse(0)).collect();
    let mut ends: BinaryHeap<(Reverse<u64>, usize)> = BinaryHeap::new();
    let mut permits: Vec<Option<GuardPermit<'_, ManualClock>>> = Vec::new();
    let (mut now, mut admitted) = (START_NS as f64, 0);
    for arrival in 0..ARRIVALS {
        now += dice.exponential() * MEAN_NS / (load * servers as f64);
        while let Some(&(Reverse(end), permit)) = ends.peek()
            && end <= now as u64
        {
            ends.pop();
            clock.set(Timestamp::from_nanos(end));
            permits[permit].take().expect("ends once").success();
        }
        clock.set(Timestamp::from_nanos(now as u64));
        let service = (dice.bimodal() * MEAN_NS) as u64;
        let Ok(permit) = guard.try_acquire(()) else { continue };
        admitted += u32::from(arrival >= WARM_UP);
        let mut server = free.peek_mut().expect("there is a server");
        server.0 = server.0.max(now as u64) + service;
        ends.push((Reverse(server.0), permits.len()));
        permits.push(Some(permit));
    }
    permits.into_iter().flatten().for_each(GuardPermit::ignored);
    f64::from(admitted) / f64::from(ARRIVALS - WARM_UP)
}

#[test]
fn variance_below_saturation_does_not_look_like_overload() {
    for (servers, load) in [(8, 0.5), (8, 0.8), (32, 0.5), (32, 0.8)] {
        let seeds = (1..=10).map(|seed| seed * 7_919);
        let adaptive: Vec<f64> =
            seeds.clone().map(|seed| admitted(Concurrency::adaptive(4..=400), servers, load, seed)).collect();
        let fixed = seeds.map(|seed| admitted(servers as u32, servers, load, seed)).sum::<f64>() / 10.0;
        let mean = adaptive.iter().sum::<f64>() / 10.0;
        let least = adaptive.iter().copied().fold(1.0, f64::min);
        let told =
            format!("{servers} servers at {load}: adaptive {mean:.3}, least {least:.3}, fixed {fixed:.3}");
        assert!(mean >= 0.95 * fixed, "{told}");
        assert!(least >= 0.85 * fixed, "{told}");
    }
}
