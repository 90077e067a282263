//! Disturbances that no ceiling can change, and the additive rule: reported row by row, and checked for what
//! must never happen.

use throttlekit_core::concurrency::{Ceiling, Estimator};

use super::examine::{CAPACITIES, DISCIPLINES, HELD_OUT, Size};
use super::invariants::{LEAST, MOST, Make, settle, warm_up};
use super::judge::{NEAR_BAR, Stretch};
use super::{Discipline, Disturbance, Point, Scenario, Service, play};
use throttlekit_conformance::check::{Check, ensure};

/// The minimum part of the backend's disturbed throughput, on average over the scenarios of a row.
pub const DISTURBED_THROUGHPUT_BAR: f64 = 0.85;
/// If the duration of all work drifts by more than this within a round, no estimator can distinguish that
/// from a queue. Such rows are reported, and only checked for ceilings that get stuck.
const DRIFT_JUDGED_MAX: f64 = 0.1;

/// The minimum number of completions of a run. Where all work drifts by a fifth, a ceiling may be too low for
/// some thousand calls.
const COMPLETIONS_MIN: u64 = 8_000;

const UNDISTURBED: Disturbance = Disturbance { drift: 0.0, outliers_per_mille: 0, failures_per_mille: 0 };

/// The disturbances: a common factor that drifts by a tenth and a fifth, outliers, failures, and all at once.
pub const DISTURBANCES: [(&str, Disturbance); 5] = [
    ("drift of a tenth", Disturbance { drift: 0.1, ..UNDISTURBED }),
    ("drift of a fifth", Disturbance { drift: 0.2, ..UNDISTURBED }),
    ("outliers", Disturbance { outliers_per_mille: 10, ..UNDISTURBED }),
    ("failures", Disturbance { failures_per_mille: 10, ..UNDISTURBED }),
    ("all of them", Disturbance { drift: 0.1, outliers_per_mille: 10, failures_per_mille: 10 }),
];

/// The behavior of ceilings under one disturbance, or by another rule.
#[derive(Clone, Debug)]
pub struct Row {
    /// The name of the row.
    pub name: String,
    /// Every run.
    pub stretches: Vec<Stretch>,
}

impl Row {
    /// Returns the mean over all scenarios.
    pub fn mean(&self, of: impl Fn(&Stretch) -> f64) -> f64 {
        self.stretches.iter().map(of).sum::<f64>() / self.stretches.len() as f64
    }

    /// Checks `inference_withstands`: on average within [`NEAR_BAR`] of the best, and busy.
    fn check(&self) -> Check {
        let (mean, throughput) = (self.mean(|row| row.mean), self.mean(|row| row.throughput));
        ensure((mean - 1.0).abs() <= NEAR_BAR, || format!("{}: at {mean:.2} of the best", self.name))?;
        ensure(throughput >= DISTURBED_THROUGHPUT_BAR, || {
            format!("{}: throughput {throughput:.3}", self.name)
        })
    }
}

/// Examines every disturbance over every capacity. Returns the rows and the violations.
pub fn examine_disturbances(make: &impl Make, size: Size) -> (Vec<Row>, Vec<String>) {
    let (mut rows, mut broken) = (Vec::new(), Vec::new());
    let completions = size.completions.max(COMPLETIONS_MIN);
    for (name, disturbance) in DISTURBANCES {
        let mut stretches = Vec::new();
        for (discipline, capacity, seed) in scenarios(size) {
            let scenario = Scenario::steady(discipline, Service::Jittered, capacity, completions);
            let (stretch, stuck) = disturbed(make, Scenario { disturbance, ..scenario }, seed);
            stretches.push(stretch);
            broken.extend(
                stuck
                    .err()
                    .map(|counterexample| format!("{name}, {capacity}, seed {seed}: {counterexample}")),
            );
        }
        let row = Row { name: name.into(), stretches };
        if disturbance.drift <= DRIFT_JUDGED_MAX {
            broken.extend(row.check().err());
        }
        rows.push(row);
    }
    (rows, broken)
}

/// Checks `inference_withstands`: never stuck at the floor. Half of the best is reached in the second half of
/// any run.
fn disturbed(make: &impl Make, scenario: Scenario, seed: u64) -> (Stretch, Check) {
    let warm = warm_up(scenario.capacity);
    let points =
        play(&mut make(LEAST), Scenario { completions: warm + scenario.completions, ..scenario }, seed);
    let late = &points[points.len() - scenario.completions as usize / 2..];
    let most = late.iter().map(|point| point.limit).max().unwrap_or(0);
    let leaves = ensure(f64::from(most) >= 0.5 * scenario.best(), || format!("stuck at {most}"));
    (Stretch::of(&points[warm as usize..], &scenario), leaves)
}

fn scenarios(size: Size) -> impl Iterator<Item = (Discipline, u32, u64)> {
    let seeds = HELD_OUT..HELD_OUT + size.seeds;
    DISCIPLINES.into_iter().flat_map(move |discipline| {
        let seeds = seeds.clone();
        CAPACITIES
            .into_iter()
            .flat_map(move |capacity| seeds.clone().map(move |seed| (discipline, capacity, seed)))
    })
}

fn additive(initial: u32) -> Estimator {
    Estimator::new(Ceiling::between(LEAST, MOST).starting_at(initial).aimd(0.9))
}

/// Examines the additive rule, with these denials per thousand on another axis. Checks that it stays within
/// its bounds, and that denials do not lower it.
pub fn examine_aimd(size: Size) -> (Vec<Row>, Vec<String>) {
    let mut rows = Vec::new();
    for denied_per_mille in [0, 10, 200] {
        let settled = |(discipline, capacity, seed)| {
            let scenario = Scenario::steady(discipline, Service::Jittered, capacity, size.completions);
            settle(&additive, Scenario { denied_per_mille, ..scenario }, seed)
        };
        let name = format!("{denied_per_mille} of a thousand denied");
        rows.push(Row { name, stretches: scenarios(size).map(settled).collect() });
    }
    let [without, with] = [&rows[0], &rows[2]].map(|row| row.mean(|stretch| stretch.mean));
    let survives =
        ensure(with >= 0.8 * without, || format!("aimd: from {without:.2} to {with:.2} by denials"));
    let bounded = |point: &Point| (LEAST..=MOST).contains(&point.limit);
    let scenario = Scenario::steady(Discipline::Queue, Service::Exponential, 16, 4 * size.completions);
    let stays = play(&mut additive(MOST), scenario, HELD_OUT).iter().all(bounded);
    let stays = ensure(stays, || "aimd: left its bounds".into());
    (rows, [survives, stays].into_iter().filter_map(Check::err).collect())
}
