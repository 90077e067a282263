//! A ceiling that follows latency.

use core::time::Duration;

use crate::Timestamp;

/// Within which bounds a ceiling is inferred.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    least: u32,
    most: u32,
    initial: u32,
}

impl Ceiling {
    /// A ceiling between these two, which starts at the least.
    pub fn between(least: u32, most: u32) -> Self {
        let least = least.max(1);
        Self { least, most: most.max(least), initial: least }
    }
}

/// What one piece of work told when it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// How long it took.
    pub latency: Duration,
    /// How many were in flight when it was let in, itself among them.
    pub in_flight: u32,
    /// How many were allowed to be just then: the ceiling, or the part of it that is this node's.
    pub allowed: u32,
}

/// Infers how many at a time a backend takes before work queues up.
#[derive(Clone, Debug)]
pub struct Estimator {
    ceiling: Ceiling,
    estimate: f64,
}

impl Estimator {
    /// An estimator that knows nothing yet.
    pub fn new(ceiling: Ceiling) -> Self {
        Self { ceiling, estimate: f64::from(ceiling.initial) }
    }

    /// How many at a time, now.
    pub fn limit(&self) -> u32 {
        self.estimate as u32
    }

    /// Work was done.
    pub fn success(&mut self, sample: Sample, now: Timestamp) -> u32 {
        let _ = now;
        if 2 * u64::from(sample.in_flight) >= u64::from(sample.allowed) {
            self.estimate = (self.estimate + 1.0).min(f64::from(self.ceiling.most));
        }
        self.limit()
    }

    /// Work was turned away by the backend, or timed out.
    pub fn dropped(&mut self, now: Timestamp) -> u32 {
        let _ = now;
        self.estimate = (self.estimate * 0.9).max(f64::from(self.ceiling.least));
        self.limit()
    }
}
