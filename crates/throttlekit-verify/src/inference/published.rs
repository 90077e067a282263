//! The rule as published and as in the first implementation, with the fault that made it collapse.

use std::collections::VecDeque;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::Sample;

use super::Infers;
use super::invariants::{LEAST, MOST};

/// Faults beyond the rule itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// A slot that was unused because another axis denied is released as an instant success.
    pub denials_are_samples: bool,
}

/// estimate · clamp(tolerance · no-load / latency, ½, 1) + √estimate, smoothed, for every sample.
#[derive(Clone, Debug)]
pub struct Published {
    faults: Faults,
    tolerance: f64,
    estimate: f64,
    window: VecDeque<f64>,
}

const WINDOW: usize = 100;
const SMOOTHING: f64 = 0.2;

impl Published {
    /// Creates the rule with these faults; the published tolerance is 2.
    pub fn new(faults: Faults, tolerance: f64, initial: u32) -> Self {
        Self { faults, tolerance, estimate: f64::from(initial), window: VecDeque::new() }
    }

    fn enter(&mut self, latency: f64) {
        self.window.push_back(latency);
        if self.window.len() > WINDOW {
            self.window.pop_front();
        }
    }

    fn no_load(&self) -> f64 {
        self.window.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn follow(&mut self, gradient: f64) -> u32 {
        let next = self.estimate * gradient + self.estimate.sqrt();
        self.estimate += (next - self.estimate) * SMOOTHING;
        self.estimate = self.estimate.clamp(f64::from(LEAST), f64::from(MOST));
        self.limit()
    }
}

impl Infers for Published {
    fn limit(&self) -> u32 {
        self.estimate as u32
    }

    fn success(&mut self, sample: Sample, _now: Timestamp) -> u32 {
        let latency = sample.latency.as_secs_f64() * 1_000.0;
        self.enter(latency);
        let under_used = 2.0 * f64::from(sample.in_flight) < self.estimate;
        if under_used {
            return self.limit();
        }
        let gradient =
            if latency > 0.0 { (self.tolerance * self.no_load() / latency).clamp(0.5, 1.0) } else { 1.0 };
        self.follow(gradient)
    }

    fn dropped(&mut self, _sample: Sample, _now: Timestamp) -> u32 {
        self.follow(0.5)
    }

    fn ignored(&mut self, sample: Sample, now: Timestamp) {
        if self.faults.denials_are_samples {
            self.success(Sample { latency: Duration::ZERO, ..sample }, now);
        }
    }
}
