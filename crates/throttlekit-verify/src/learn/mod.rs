//! `learn`: regret stays below its stated envelope, and no learner can choose a batch outside its bounds.
//! Here for the sizes of leases; [`reserve`] is the same for reservations.
//!
//! As with the other invariants, a check is a function of the learner under test; the same one runs on the
//! real learners and on those with a seeded bug.

mod demand;
mod predict;
mod regret;
pub mod reserve;
mod seeded;

use throttlekit_core::lease::{PredictiveSizer, Sizer, SizerOptions};

pub use demand::{DRIFTING, Demand, Family, HOLDING};
pub use predict::{BAD_HINTS, CLAIRVOYANT_BAR, Comparison, Hints, ROBUST_BAR, compare};
pub use regret::{Account, accounts, average, check_drift, check_regret};
pub use seeded::{PredictorBug, Predicts, SeededPredictor, SeededSizer, SizerBug, Sizes};
use throttlekit_conformance::Dice;
use throttlekit_conformance::bugs::Found;
use throttlekit_conformance::check::{Check, ensure};

/// The size of an examination.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The number of seeds of each family.
    pub seeds: u64,
    /// The numbers of windows after which regret is measured, ascending.
    pub horizons: &'static [u64],
    /// Windows with forecasts, and of drifting demand.
    pub windows: u64,
    /// Observations in the search for a batch out of bounds.
    pub observations: u64,
}

/// The findings.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// For each holding family.
    pub regret: Vec<Regret>,
    /// For each drifting family: the largest cost as a part of that of the best fixed batch.
    pub drift: Vec<(Family, f64)>,
    /// For each family: the largest ratio with perfect forecasts, and with bad ones.
    pub predictive: Vec<(Family, f64, f64)>,
    /// The violations.
    pub violations: Vec<String>,
}

/// The regret on demand of one family.
#[derive(Clone, Debug)]
pub struct Regret {
    /// The family.
    pub family: Family,
    /// Regret per window at each horizon, on average over the seeds.
    pub per_window: Vec<f64>,
    /// The largest part of the envelope that any seed used.
    pub envelope_ratio: f64,
}

/// Examines the learners of the core.
pub fn examine(size: Size) -> Findings {
    let options = SizerOptions::default();
    let mut found = examine_sizer(Sizer::default, options, size);
    let predictive = examine_predictor(PredictiveSizer::default, options, size);
    found.predictive = predictive.predictive;
    found.violations.extend(predictive.violations);
    found
}

/// Searches for the seeded bugs with the same checks.
pub fn find_seeded(size: Size) -> Found {
    let options = SizerOptions::default();
    let sizers = Found::all(|bug: SizerBug| {
        let found = examine_sizer(|| SeededSizer::new(bug, options), options, size);
        !found.violations.is_empty()
    });
    let predictors = Found::all(|bug: PredictorBug| {
        let found = examine_predictor(|| SeededPredictor::new(bug, options), options, size);
        !found.violations.is_empty()
    });
    sizers.merge(predictors)
}

/// Runs every check of a sizer.
pub fn examine_sizer<S: Sizes>(make: impl Fn() -> S, options: SizerOptions, size: Size) -> Findings {
    let mut found = Findings::default();
    for family in HOLDING {
        let run = |seed| accounts(&mut make(), options, family, seed, size.horizons);
        let runs: Vec<_> = (0..size.seeds).map(run).collect();
        found.note(family, check_regret(&runs));
        let envelope_ratio = runs.iter().flatten().map(|account| account.envelope_ratio).fold(0.0, f64::max);
        let per_window = average(&runs).into_iter().map(|(_, regret, _)| regret).collect();
        found.regret.push(Regret { family, per_window, envelope_ratio });
    }
    for family in DRIFTING {
        let run = |seed| accounts(&mut make(), options, family, seed, &[size.windows])[0];
        let runs: Vec<_> = (0..size.seeds).map(run).collect();
        runs.iter().for_each(|account| found.note(family, check_drift(account)));
        found.drift.push((family, runs.iter().map(|a| a.paid / a.best).fold(0.0, f64::max)));
    }
    let mut sizer = make();
    let mut step = |demand: u64, _hint: u64| {
        sizer.observe(demand);
        sizer.batch()
    };
    found.violations.extend(check_bounds(&mut step, options, size.observations).err());
    found
}

/// Runs every check of a sizer with forecasts.
pub fn examine_predictor<P: Predicts>(make: impl Fn() -> P, options: SizerOptions, size: Size) -> Findings {
    let mut found = Findings::default();
    for family in HOLDING.into_iter().chain(DRIFTING) {
        let mut worst = |hints| {
            let run = |seed| compare(&mut make(), options, family, hints, seed, size.windows);
            let runs: Vec<_> = (0..size.seeds).map(run).collect();
            runs.iter().for_each(|comparison| found.note(family, comparison.check()));
            runs.iter().map(Comparison::ratio).fold(0.0, f64::max)
        };
        let perfect = worst(Hints::Perfect);
        let bad = BAD_HINTS.into_iter().map(worst).fold(0.0, f64::max);
        found.predictive.push((family, perfect, bad));
    }
    let mut sizer = make();
    let mut step = |demand: u64, hint: u64| {
        sizer.observe(hint, demand);
        sizer.batch(hint)
    };
    found.violations.extend(check_bounds(&mut step, options, size.observations).err());
    found
}

/// Checks that the batch stays within its bounds for any observations.
fn check_bounds(step: &mut dyn FnMut(u64, u64) -> u64, options: SizerOptions, observations: u64) -> Check {
    let mut dice = Dice::new(observations);
    let mut roll = || match dice.below(8) {
        0 => 0,
        1 => u64::MAX,
        _ => dice.any_size(u64::MAX),
    };
    for _ in 0..observations / 8 {
        let (demand, hint) = (roll(), roll());
        // In runs, since the ends are only reached by many steps in the same direction.
        for _ in 0..8 {
            let batch = step(demand, hint);
            let within = (options.batch_min..=options.batch_max).contains(&batch);
            ensure(within, || format!("a batch of {batch} after a demand of {demand}, {hint} expected"))?;
        }
    }
    Ok(())
}

impl Findings {
    fn note(&mut self, family: Family, check: Check) {
        self.violations.extend(check.err().map(|counterexample| format!("{family:?}: {counterexample}")));
    }
}
