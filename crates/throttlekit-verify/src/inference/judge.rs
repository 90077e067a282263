//! Measurements of the ceiling from a trace of completions.

use throttlekit_core::concurrency::Ending;

use super::{Point, Scenario};
use throttlekit_conformance::check::{Check, ensure};

/// The time-weighted mean of the ceiling is within this part of the best.
pub const MEAN_BAR: f64 = 0.2;
/// The ceiling is within this part of the best for [`NEAR_SHARE`] of the time.
pub const NEAR_BAR: f64 = 0.3;
/// The part of the time, on average over the scenarios of a shape.
pub const NEAR_SHARE: f64 = 0.9;
/// For any service times, the mean never exceeds this many times the best.
pub const RUNAWAY_BAR: f64 = 2.0;
/// The minimum part of the backend's possible throughput, on average over the scenarios of a shape; a single
/// scenario may idle a little more.
pub const THROUGHPUT_BAR: f64 = 0.95;
const THROUGHPUT_MIN: f64 = 0.9;
/// The maximum latency, as a multiple of that without any queue.
pub const LATENCY_BAR: f64 = 1.3;
/// The maximum number of completions for a ceiling to recover from a step.
pub const RECOVERY_BAR: u64 = 200;

/// The measurements of a ceiling over a run, relative to the best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Its mean over time, as a part of the best.
    pub mean: f64,
    /// The part of the time for which it was within [`NEAR_BAR`] of the best.
    pub near: f64,
    /// The throughput, as a part of the backend's possible one.
    pub throughput: f64,
    /// The latency, as a multiple of that without any queue.
    pub latency: f64,
}

impl Stretch {
    /// Measures these completions of a scenario.
    pub fn of(points: &[Point], scenario: &Scenario) -> Self {
        let (best, alone_ns) = (scenario.best(), scenario.alone_ns());
        let done = points.iter().filter(|point| point.ending == Ending::Success);
        let (calls, took_ns) =
            done.fold((0.0, 0.0), |(calls, ns), point| (calls + 1.0, ns + point.latency_ns as f64));
        let lasted_ns = (points[points.len() - 1].at_ns - points[0].at_ns) as f64;
        Self {
            mean: over_time(points, f64::from) / best,
            near: over_time(points, |limit| f64::from(is_near(limit, best, NEAR_BAR))),
            throughput: calls * alone_ns / lasted_ns / best,
            latency: took_ns / f64::max(calls, 1.0) / alone_ns,
        }
    }

    /// Checks `inference_settles`: within [`MEAN_BAR`] on average, without idling and without a queue.
    pub fn check(&self) -> Check {
        ensure((self.mean - 1.0).abs() <= MEAN_BAR, || format!("settled at {:.2} of the best", self.mean))?;
        ensure(self.throughput >= THROUGHPUT_MIN, || format!("throughput {:.3}", self.throughput))?;
        ensure(self.latency <= LATENCY_BAR, || format!("latency {:.2} of the no-load latency", self.latency))
    }
}

/// Returns the completions after the step until the ceiling came within a fifth of the new best and on
/// average stayed there, for about ten rounds.
pub fn recovery(points: &[Point], scenario: &Scenario) -> Option<u64> {
    let (at, _) = scenario.step?;
    let (after, best) = (points.get(at as usize..)?, scenario.best());
    let stays = 400 + 5 * scenario.capacity as usize;
    let holds = |from: usize| {
        let mean = over_time(&after[from..from + stays], f64::from) / best;
        is_near(after[from].limit, best, MEAN_BAR) && (mean - 1.0).abs() <= MEAN_BAR
    };
    (0..after.len().checked_sub(stays)?).find(|from| holds(*from)).map(|from| from as u64)
}

/// Returns the completions that a trace needs after the step for [`recovery`] to be known up to `most`.
pub(super) fn tail(scenario: &Scenario, most: u64) -> u64 {
    most + 401 + 5 * u64::from(scenario.capacity)
}

fn is_near(limit: u32, best: f64, by: f64) -> bool {
    (f64::from(limit) / best - 1.0).abs() <= by + 1e-9
}

fn over_time(points: &[Point], of: impl Fn(u32) -> f64) -> f64 {
    let (sum, time) = points.windows(2).fold((0.0, 0.0), |(sum, time), pair| {
        let lasts = (pair[1].at_ns - pair[0].at_ns) as f64;
        (sum + of(pair[0].limit) * lasts, time + lasts)
    });
    sum / f64::max(time, 1.0)
}
