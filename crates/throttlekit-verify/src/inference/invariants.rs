//! The invariants of every ceiling, each in a scenario that tests it.

use throttlekit_core::concurrency::Ending;

use super::judge::{RECOVERY_BAR, Stretch, recovery, tail};
use super::{Discipline, Infers, Point, Scenario, Service, Step, play};
use throttlekit_conformance::check::{Check, ensure};

/// Builds an estimator with bounds from 4 to 512 that starts at this ceiling.
pub trait Make: Fn(u32) -> Self::Made {
    /// The type of the estimator.
    type Made: Infers;
}

impl<I: Infers, F: Fn(u32) -> I> Make for F {
    type Made = I;
}

/// The minimum of every ceiling under test.
pub const LEAST: u32 = 4;
/// The maximum of every ceiling under test.
pub const MOST: u32 = 512;

/// Returns the completions before a ceiling counts as settled: it starts at the minimum, and longer rounds
/// take longer.
pub fn warm_up(capacity: u32) -> u64 {
    2_000 + 30 * u64::from(capacity)
}

/// Lets a constant scenario settle, and measures `completions` after that.
pub fn settle(make: &impl Make, scenario: Scenario, seed: u64) -> Stretch {
    let warm = warm_up(scenario.capacity);
    let points =
        play(&mut make(LEAST), Scenario { completions: warm + scenario.completions, ..scenario }, seed);
    Stretch::of(&points[warm as usize..], &scenario)
}

/// Returns the completions until a settled ceiling recovers from a step, if it does within `most`.
pub fn recover(make: &impl Make, scenario: Scenario, step: Step, seed: u64, most: u64) -> Option<u64> {
    // At varying points of the estimator's cycle.
    let at = warm_up(scenario.capacity) + seed % 31 * 37;
    let scenario = Scenario { step: Some((at, step)), completions: at + tail(&scenario, most), ..scenario };
    recovery(&play(&mut make(LEAST), scenario, seed), &scenario)
}

/// Checks `inference_survives_denials`: denials of another axis change nothing.
pub fn check_denials(make: &impl Make, denied_per_mille: u64, seed: u64) -> Check {
    let scenario = Scenario::steady(Discipline::Queue, Service::Jittered, 32, 6_000);
    settle(make, Scenario { denied_per_mille, ..scenario }, seed).check()
}

/// Checks `inference_bounded_by_timeouts`: callers that time out do not make it grow, from any start.
pub fn check_timeouts(make: &impl Make, initial: u32, seed: u64) -> Check {
    let scenario = Scenario::steady(Discipline::Queue, Service::Jittered, 32, 12_000);
    let scenario = Scenario { timeout: Some(2.5), ..scenario };
    let points = play(&mut make(initial), scenario, seed);
    let stretch = Stretch::of(&points[6_000..], &scenario);
    ensure((stretch.mean - 1.0).abs() <= 0.3, || format!("at {:.2} of the best under timeouts", stretch.mean))
}

/// Checks `inference_bounded_by_timeouts`: a backend that refuses calls beyond its capacity at once keeps its
/// load.
pub fn check_refusals(make: &impl Make, seed: u64) -> Check {
    let scenario = Scenario::steady(Discipline::Queue, Service::Jittered, 32, 12_000);
    let points = play(&mut make(MOST), Scenario { refuses_beyond: Some(40), ..scenario }, seed);
    let stretch = Stretch::of(&points[6_000..], &scenario);
    ensure((stretch.mean - 1.0).abs() <= 0.3, || format!("at {:.2} of the best under refusals", stretch.mean))
}

/// Checks `inference_bounded_by_timeouts`: a backend that never responds does not make it grow.
pub fn check_hang(make: &impl Make, seed: u64) -> Check {
    let scenario = Scenario::steady(Discipline::Queue, Service::Steady, 32, 3_000);
    let points = play(&mut make(64), Scenario { timeout: Some(0.5), ..scenario }, seed);
    ensure(points.iter().all(|point| point.ending == Ending::Dropped), || "someone was answered".into())?;
    let last = points[points.len() - 1].limit;
    ensure(last <= 2 * LEAST, || format!("{last} at a time to a backend that answers nobody"))
}

/// Checks `inference_rests_when_under_used`: a third of the ceiling in use gives no information about the
/// rest.
pub fn check_light(make: &impl Make, seed: u64) -> Check {
    let scenario = Scenario::steady(Discipline::Queue, Service::Jittered, 64, 5_000);
    let points = play(&mut make(96), Scenario { callers: Some(32), ..scenario }, seed);
    let most = points.iter().map(|point| point.limit).max().unwrap_or(0);
    ensure(most <= 96, || format!("grew from 96 to {most} while 32 were in use"))
}

/// Checks `inference_in_units_of_the_whole`: a node that sees an eighth of the load infers the same ceiling.
pub fn check_share(make: &impl Make, seed: u64) -> Check {
    let scenario = Scenario::steady(Discipline::Queue, Service::Jittered, 64, 60_000);
    let points = play(&mut make(LEAST), Scenario { nodes: 8, ..scenario }, seed);
    Stretch::of(&points[30_000..], &scenario).check()
}

/// Checks `inference_never_dips`: once settled it never falls below half of the best, and stays within its
/// bounds.
pub fn check_dips(make: &impl Make, seed: u64) -> Check {
    let scenario = Scenario::steady(Discipline::Sharing, Service::Jittered, 48, 12_000);
    let points = play(&mut make(LEAST), scenario, seed);
    let settled = &points[warm_up(48) as usize..];
    let least = settled.iter().map(|point| point.limit).min().unwrap_or(0);
    ensure(f64::from(least) >= 0.5 * scenario.best(), || format!("dipped to {least}"))?;
    let bounded = |point: &Point| (LEAST..=MOST).contains(&point.limit);
    ensure(points.iter().all(bounded), || "left its bounds".into())?;
    Stretch::of(settled, &scenario).check()
}

/// Checks `inference_recovers`: from a step of a backend whose times vary little.
pub fn check_recovery(make: &impl Make, step: Step, seed: u64) -> Check {
    let scenario = Scenario::steady(Discipline::Queue, Service::Jittered, 24, 0);
    let took = recover(make, scenario, step, seed, RECOVERY_BAR);
    ensure(took.is_some(), || format!("not recovered from {step:?} within {RECOVERY_BAR} completions"))
}
