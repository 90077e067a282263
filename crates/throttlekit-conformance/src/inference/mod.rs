//! `inference`: a ceiling settles near the best one, and follows when that moves.

mod backend;
mod service;
mod world;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Estimator, Sample};

pub use backend::Discipline;
pub use service::{SERVICES, Service};
pub use world::{ALONE_MS, Point, Step, World, play};

/// What infers a ceiling.
pub trait Infers {
    /// How many at a time, now.
    fn limit(&self) -> u32;
    /// Work was done.
    fn success(&mut self, sample: Sample, now: Timestamp) -> u32;
    /// Work was turned away or timed out.
    fn dropped(&mut self, sample: Sample, now: Timestamp) -> u32;
    /// The slot was handed back unused.
    fn ignored(&mut self, sample: Sample, now: Timestamp);
}

impl Infers for Estimator {
    fn limit(&self) -> u32 {
        Self::limit(self)
    }
    fn success(&mut self, sample: Sample, now: Timestamp) -> u32 {
        Self::success(self, sample, now)
    }
    fn dropped(&mut self, _sample: Sample, now: Timestamp) -> u32 {
        Self::dropped(self, now)
    }
    fn ignored(&mut self, _sample: Sample, _now: Timestamp) {}
}
