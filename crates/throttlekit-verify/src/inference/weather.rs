//! What no ceiling can change, and the additive rule: told row by row, and judged by what must never happen.

use throttlekit_core::concurrency::{Ceiling, Estimator};

use super::examine::{CAPACITIES, DISCIPLINES, HELD_OUT, Size};
use super::judge::{NEAR_BAR, Stretch};
use super::laws::{LEAST, MOST, Make, settle, warm_up};
use super::{Discipline, Point, Service, Weather, World, play};
use throttlekit_conformance::check::{Check, ensure};

/// Of what the backend could do in bad weather, on average over the worlds of a row.
pub const WEATHER_THROUGHPUT_BAR: f64 = 0.85;
/// Where all work becomes slower and faster together by more than this, for as long as a round takes, no look tells that
/// from a queue; then it is told how ceilings do, and only judged that they do not stick.
const DRIFT_JUDGED_MAX: f64 = 0.1;

/// Completions of a stretch at the least. Where all work drifts by a fifth, a ceiling may be too low for some thousand calls.
const COMPLETIONS_MIN: u64 = 8_000;

const CALM: Weather = Weather { drift: 0.0, outliers_per_mille: 0, failures_per_mille: 0 };

/// The weathers: a common factor that drifts by a tenth and a fifth, outliers, failures, and all at once.
pub const WEATHERS: [(&str, Weather); 5] = [
    ("drift of a tenth", Weather { drift: 0.1, ..CALM }),
    ("drift of a fifth", Weather { drift: 0.2, ..CALM }),
    ("outliers", Weather { outliers_per_mille: 10, ..CALM }),
    ("failures", Weather { failures_per_mille: 10, ..CALM }),
    ("all of them", Weather { drift: 0.1, outliers_per_mille: 10, failures_per_mille: 10 }),
];

/// How ceilings did in one weather, or by another rule.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub name: String,
    /// Every stretch.
    pub stretches: Vec<Stretch>,
}

impl Row {
    /// The mean over all worlds.
    pub fn mean(&self, of: impl Fn(&Stretch) -> f64) -> f64 {
        self.stretches.iter().map(of).sum::<f64>() / self.stretches.len() as f64
    }

    /// Law `inference_weathers`: on average within [`NEAR_BAR`] of the best, and busy.
    fn check(&self) -> Check {
        let (mean, throughput) = (self.mean(|row| row.mean), self.mean(|row| row.throughput));
        ensure((mean - 1.0).abs() <= NEAR_BAR, || format!("{}: at {mean:.2} of the best", self.name))?;
        ensure(throughput >= WEATHER_THROUGHPUT_BAR, || format!("{}: throughput {throughput:.3}", self.name))
    }
}

/// Every weather over every capacity, and what did not hold.
pub fn examine_weather(make: &impl Make, size: Size) -> (Vec<Row>, Vec<String>) {
    let (mut rows, mut broken) = (Vec::new(), Vec::new());
    let completions = size.completions.max(COMPLETIONS_MIN);
    for (name, weather) in WEATHERS {
        let mut stretches = Vec::new();
        for (discipline, capacity, seed) in worlds(size) {
            let world = World::steady(discipline, Service::Jittered, capacity, completions);
            let (stretch, stuck) = weathered(make, World { weather, ..world }, seed);
            stretches.push(stretch);
            broken.extend(stuck.err().map(|story| format!("{name}, {capacity}, seed {seed}: {story}")));
        }
        let row = Row { name: name.into(), stretches };
        if weather.drift <= DRIFT_JUDGED_MAX {
            broken.extend(row.check().err());
        }
        rows.push(row);
    }
    (rows, broken)
}

/// Law `inference_weathers`: never stuck at the floor. Half of the best is reached in the second half of any stretch.
fn weathered(make: &impl Make, world: World, seed: u64) -> (Stretch, Check) {
    let warm = warm_up(world.capacity);
    let points = play(&mut make(LEAST), World { completions: warm + world.completions, ..world }, seed);
    let late = &points[points.len() - world.completions as usize / 2..];
    let most = late.iter().map(|point| point.limit).max().unwrap_or(0);
    let leaves = ensure(f64::from(most) >= 0.5 * world.best(), || format!("stuck at {most}"));
    (Stretch::of(&points[warm as usize..], &world), leaves)
}

fn worlds(size: Size) -> impl Iterator<Item = (Discipline, u32, u64)> {
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

/// The additive rule, with these denials of a thousand elsewhere. Judged: it stays within its bounds, and denials do
/// not bring it down.
pub fn examine_aimd(size: Size) -> (Vec<Row>, Vec<String>) {
    let mut rows = Vec::new();
    for denied_per_mille in [0, 10, 200] {
        let settled = |(discipline, capacity, seed)| {
            let world = World::steady(discipline, Service::Jittered, capacity, size.completions);
            settle(&additive, World { denied_per_mille, ..world }, seed)
        };
        let name = format!("{denied_per_mille} of a thousand denied");
        rows.push(Row { name, stretches: worlds(size).map(settled).collect() });
    }
    let [without, with] = [&rows[0], &rows[2]].map(|row| row.mean(|stretch| stretch.mean));
    let survives =
        ensure(with >= 0.8 * without, || format!("aimd: from {without:.2} to {with:.2} by denials"));
    let bounded = |point: &Point| (LEAST..=MOST).contains(&point.limit);
    let world = World::steady(Discipline::Queue, Service::Exponential, 16, 4 * size.completions);
    let stays = play(&mut additive(MOST), world, HELD_OUT).iter().all(bounded);
    let stays = ensure(stays, || "aimd: left its bounds".into());
    (rows, [survives, stays].into_iter().filter_map(Check::err).collect())
}
