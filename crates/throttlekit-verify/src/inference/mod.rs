//! `inference`: a ceiling settles near the best one, and follows when that moves.
//!
//! Backends whose best ceiling is known, C servers behind one queue or C shared cores, run against the
//! production estimator in a closed loop: there are always more callers than the ceiling admits. Below C
//! servers idle, above it calls only queue. The same invariants run on estimators with a seeded bug.
//! [`tails`] has the open loop, with long-tailed service times.

mod backend;
mod disturbances;
mod examine;
mod invariants;
mod judge;
mod published;
mod scenario;
mod seeded;
mod service;
pub mod tails;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Estimator, Sample};

pub use backend::Discipline;
pub use disturbances::{DISTURBANCES, DISTURBED_THROUGHPUT_BAR, Row, examine_aimd, examine_disturbances};
pub use examine::{
    CAPACITIES, Findings, HELD_OUT, LARGE, Large, RECOVERED_SHARE, Recovery, STEPS, Settling, Size, examine,
    examine_large, shipped,
};
pub use invariants::{
    LEAST, MOST, Make, check_denials, check_dips, check_hang, check_light, check_recovery, check_refusals,
    check_share, check_timeouts, recover, settle, warm_up,
};
pub use judge::{
    LATENCY_BAR, MEAN_BAR, NEAR_BAR, NEAR_SHARE, RECOVERY_BAR, RUNAWAY_BAR, Stretch, THROUGHPUT_BAR, recovery,
};
pub use published::{Faults, Published};
pub use scenario::{ALONE_MS, Disturbance, OUTLIER, Point, Scenario, Step, play};
pub use seeded::{InferenceBug, examine_controls, find_seeded, first_implementation};
pub use service::{SERVICES, Service};

/// Infers a ceiling.
pub trait Infers {
    /// Returns the current ceiling.
    fn limit(&self) -> u32;
    /// Records a success.
    fn success(&mut self, sample: Sample, now: Timestamp) -> u32;
    /// Records an overload or a timeout.
    fn dropped(&mut self, sample: Sample, now: Timestamp) -> u32;
    /// Records a slot that was released unused.
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
