//! The cost of reservations with hints: good ones, and bad ones.

use throttlekit_core::learn::{Reservation, ReservationOptions};

use super::{Check, Family, Lengths, Reserves, ensure};
use throttlekit_conformance::Dice;

/// The maximum total cost with perfect hints beyond a clairvoyant learner, for any number of streams, in D·G:
/// 2 + 16/3·ln 2.
pub const LEARNING_BAR: f64 = 5.7;
/// The maximum cost with bad hints, as a multiple of that of the learner without them, beside a first loss of
/// D·G in all: where lengths are easy to learn it pays next to nothing, and detecting bad hints costs
/// something.
pub const ROBUST_BAR: f64 = 1.1;

/// The generator of hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "`hint` says it")]
pub enum Hints {
    Perfect,
    Zero,
    Huge,
    Opposite,
    Random,
    Flattering,
    Betraying,
    Teasing,
}

/// All that are not perfect.
pub const BAD_HINTS: [Hints; 7] = [
    Hints::Zero,
    Hints::Huge,
    Hints::Opposite,
    Hints::Random,
    Hints::Flattering,
    Hints::Betraying,
    Hints::Teasing,
];

/// The costs of learners for the same sequence.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// The generator of the hints.
    pub hints: Hints,
    /// The learner under test.
    pub paid: f64,
    /// The learner alone.
    pub robust: f64,
    /// A learner that follows every hint.
    pub followed: f64,
    /// A learner that knows each length: zero, except for streams beyond the bounds.
    pub clairvoyant: f64,
    /// D·G.
    pub scale: f64,
}

impl Comparison {
    /// Returns the cost beyond D·G, relative to that of the learner alone.
    pub fn ratio(&self) -> f64 {
        (self.paid - self.scale).max(0.0) / self.robust.max(1.0)
    }

    /// Returns the cost beyond a clairvoyant learner, in D·G.
    pub fn learning(&self) -> f64 {
        (self.paid - self.clairvoyant) / self.scale
    }

    /// Checks that it is within its threshold.
    pub fn check(&self) -> Check {
        let (ratio, learning) = (self.ratio(), self.learning());
        match self.hints {
            Hints::Perfect => ensure(learning <= LEARNING_BAR, || {
                format!("perfect hints: {learning:.2} D·G paid beyond one who knows")
            }),
            bad => ensure(ratio <= ROBUST_BAR, || format!("{bad:?} hints: {ratio:.3} of the learner alone")),
        }
    }
}

/// Runs a sequence with hints on a learner, and without them on the real one.
pub fn compare(
    learner: &mut impl Reserves,
    options: ReservationOptions,
    family: Family,
    hints: Hints,
    seed: u64,
    streams: u64,
) -> Comparison {
    let mut lengths = Lengths::new(family, seed, streams, &options);
    let mut dice = Dice::new(!seed);
    let mut alone = Reservation::new(options).expect("experiments use valid options");
    let scale = options.span() * options.steepest();
    let mut sums = Comparison { hints, paid: 0.0, robust: 0.0, followed: 0.0, clairvoyant: 0.0, scale };
    for stream in 0..streams {
        let actual = lengths.next(alone.reserve(None));
        let hint = hint(&sums, actual, stream * 2 < streams, options.max, &mut dice);
        let cost = |reserved: u64| options.cost(reserved as f64, actual);
        sums.paid += cost(learner.reserve(Some(hint)));
        sums.robust += cost(alone.reserve(None));
        sums.followed += cost(hint.clamp(options.min, options.max));
        sums.clairvoyant += cost(actual.clamp(options.min, options.max));
        learner.observe(Some(hint), actual);
        alone.observe(None, actual);
    }
    sums
}

fn hint(sums: &Comparison, actual: u64, early: bool, max: u64, dice: &mut Dice) -> u64 {
    let opposite = max.saturating_sub(actual);
    let right_if = |right: bool| if right { actual } else { opposite };
    match sums.hints {
        Hints::Perfect => actual,
        Hints::Zero => 0,
        Hints::Huge => u64::MAX,
        Hints::Opposite => opposite,
        Hints::Random => dice.any_size(u64::MAX),
        // Right about the many streams that cost little, wrong about the few that cost much.
        Hints::Flattering => {
            if actual > max / 8 {
                0
            } else {
                actual
            }
        }
        Hints::Betraying => right_if(early),
        // Wrong whenever it has been the better one so far, so that no learner can decide which to follow.
        Hints::Teasing => right_if(sums.followed > sums.robust),
    }
}
