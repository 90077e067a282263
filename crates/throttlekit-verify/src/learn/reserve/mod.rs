//! `learn` for reservations: the number of tokens to reserve for streams whose lengths are not known.

mod hints;
mod lengths;
mod regret;
mod seeded;

use throttlekit_core::learn::{Reservation, ReservationOptions};

use super::{Check, Size, ensure};
pub use hints::{BAD_HINTS, Comparison, Hints, LEARNING_BAR, ROBUST_BAR, compare};
pub use lengths::{FAMILIES, Family, Lengths, heavy_tailed};
pub use regret::{Account, Hindsight, accounts, average, check_fractile, check_regret};
pub use seeded::{ReserveBug, Reserves, SeededReservation};
use throttlekit_conformance::Dice;
use throttlekit_conformance::bugs::Found;

/// Costs and bounds under which each family runs. The first are the defaults.
pub const OPTIONS: [ReservationOptions; 4] = [
    ReservationOptions { hold_cost: 1.0, overrun_cost: 4.0, min: 0, max: 4_096 },
    ReservationOptions { hold_cost: 1.0, overrun_cost: 1.0, min: 0, max: 1_024 },
    ReservationOptions { hold_cost: 1.0, overrun_cost: 19.0, min: 16, max: 2_048 },
    ReservationOptions { hold_cost: 3.0, overrun_cost: 1.0, min: 1, max: 601 },
];
/// The number of concurrent streams, where there are several.
const OPEN: usize = 8;

/// The findings.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// For each family.
    pub rows: Vec<Row>,
    /// The violations.
    pub violations: Vec<String>,
}

/// The cost of reservations for streams of one family.
#[derive(Clone, Debug)]
pub struct Row {
    /// The family.
    pub family: Family,
    /// Regret per stream at each horizon, on average over the seeds, by the default options.
    pub per_stream: Vec<f64>,
    /// The largest part of the envelope (3/2)·D·G·√T + D·G that any seed used under any options.
    pub envelope_ratio: f64,
    /// The same with several concurrent streams.
    pub open_ratio: f64,
    /// The maximum cost with perfect hints beyond a clairvoyant learner, in D·G.
    pub learning: f64,
    /// The maximum cost with bad hints beyond D·G, relative to that of the learner alone.
    pub bad_ratio: f64,
}

/// Examines the learner of the core.
pub fn examine(size: Size) -> Findings {
    let make = |options| Reservation::new(options).expect("experiments use valid options");
    examine_reserves(&FAMILIES, make, size)
}

/// Searches for the seeded bugs with the same checks.
pub fn find_seeded(size: Size) -> Found {
    Found::all(|bug: ReserveBug| {
        let make = |options| SeededReservation::new(bug, options);
        // One family that exposes it is enough.
        FAMILIES.into_iter().any(|family| !examine_reserves(&[family], make, size).violations.is_empty())
    })
}

/// Runs every check of a reservation learner.
pub fn examine_reserves<R: Reserves>(
    families: &[Family],
    make: impl Fn(ReservationOptions) -> R,
    size: Size,
) -> Findings {
    let mut found = Findings::default();
    for family in families {
        let row = found.family(*family, &make, size);
        found.rows.push(row);
    }
    for options in OPTIONS {
        let check = check_bounds(&mut make(options), options, size.observations);
        found.violations.extend(check.err());
    }
    found
}

impl Findings {
    fn family<R: Reserves>(
        &mut self,
        family: Family,
        make: &impl Fn(ReservationOptions) -> R,
        size: Size,
    ) -> Row {
        let mut row = Row::new(family);
        for options in OPTIONS {
            let make = || make(options);
            let (envelope, curve) = self.regret(family, &make, options, 1, size.seeds, size.horizons);
            let (several, _) = self.regret(family, &make, options, OPEN, size.seeds, &[size.windows]);
            row.envelope_ratio = row.envelope_ratio.max(envelope);
            row.open_ratio = row.open_ratio.max(several);
            if row.per_stream.is_empty() {
                row.per_stream = curve;
            }
            for seed in 0..size.seeds {
                self.note(family, check_fractile(&make(), options, family, seed));
                self.hints(&mut row, &make, options, seed, size.windows);
            }
        }
        row
    }

    /// Returns the largest part of the envelope that a seed used, and the regret per stream at each horizon.
    fn regret<R: Reserves>(
        &mut self,
        family: Family,
        make: &impl Fn() -> R,
        options: ReservationOptions,
        open: usize,
        seeds: u64,
        horizons: &[u64],
    ) -> (f64, Vec<f64>) {
        let run = |seed| accounts(&mut make(), options, family, seed, open, horizons);
        let runs: Vec<_> = (0..seeds).map(run).collect();
        self.note(family, check_regret(&runs));
        let worst = runs.iter().flatten().map(|account| account.envelope_ratio).fold(0.0, f64::max);
        (worst, average(&runs).into_iter().map(|(_, regret, _)| regret).collect())
    }

    /// Records the costs with hints, good and bad.
    fn hints<R: Reserves>(
        &mut self,
        row: &mut Row,
        make: &impl Fn() -> R,
        options: ReservationOptions,
        seed: u64,
        streams: u64,
    ) {
        let family = row.family;
        let mut compare = |hints| {
            let comparison = compare(&mut make(), options, family, hints, seed, streams);
            self.note(family, comparison.check());
            comparison
        };
        row.learning = row.learning.max(compare(Hints::Perfect).learning());
        row.bad_ratio =
            BAD_HINTS.into_iter().map(|hints| compare(hints).ratio()).fold(row.bad_ratio, f64::max);
    }

    fn note(&mut self, family: Family, check: Check) {
        self.violations.extend(check.err().map(|counterexample| format!("{family:?}: {counterexample}")));
    }
}

impl Row {
    fn new(family: Family) -> Self {
        let per_stream = Vec::new();
        Self { family, per_stream, envelope_ratio: 0.0, open_ratio: 0.0, learning: 0.0, bad_ratio: 0.0 }
    }
}

/// Checks that the reservation stays within its bounds for any observations and hints.
fn check_bounds(learner: &mut impl Reserves, options: ReservationOptions, observations: u64) -> Check {
    let mut dice = Dice::new(observations);
    let mut roll = || match dice.below(8) {
        0 => 0,
        1 => u64::MAX,
        _ => dice.any_size(u64::MAX),
    };
    for turn in 0..observations {
        let (actual, hint) = (roll(), Some(roll()).filter(|_| turn % 3 > 0));
        learner.observe(hint, actual);
        let reserved = learner.reserve(hint);
        ensure((options.min..=options.max).contains(&reserved), || {
            format!("{reserved} set aside after {actual} tokens, {hint:?} expected")
        })?;
    }
    Ok(())
}
