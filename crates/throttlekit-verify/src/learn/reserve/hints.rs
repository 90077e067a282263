//! What reservations cost that listen to hints: good ones, and bad ones.

use throttlekit_core::learn::{Reservation, ReservationOptions};

use super::{Check, Family, Lengths, Reserves, ensure};
use throttlekit_conformance::Dice;

/// With perfect hints all that is paid beyond one who knows each length, however many streams there are, is so much of
/// D·G: 2 + 16/3·ln 2.
pub const LEARNING_BAR: f64 = 5.7;
/// With bad hints at most so much of what the learner pays that does not hear them, beside a first loss of D·G in all:
/// where lengths are easy to learn it pays next to nothing, and finding out that hints are bad costs something.
pub const ROBUST_BAR: f64 = 1.1;

/// How hints are made.
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

/// What two learners paid for the same sequence.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// How the hints were made.
    pub hints: Hints,
    /// The one under test.
    pub paid: f64,
    /// The learner alone.
    pub robust: f64,
    /// What one who takes every hint at its word paid.
    pub followed: f64,
    /// One who knows each length: nothing, but for streams beyond the bounds.
    pub clairvoyant: f64,
    /// D·G.
    pub scale: f64,
}

impl Comparison {
    /// What was paid beyond D·G, over what the learner alone pays.
    pub fn ratio(&self) -> f64 {
        (self.paid - self.scale).max(0.0) / self.robust.max(1.0)
    }

    /// What was paid beyond one who knows, in D·G.
    pub fn learning(&self) -> f64 {
        (self.paid - self.clairvoyant) / self.scale
    }

    /// That it is within its bar.
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

/// Plays a sequence with hints to a learner, and without them to the real one.
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
        // Wrong whenever it has been the better one so far, so that nobody can tell whom to follow.
        Hints::Teasing => right_if(sums.followed > sums.robust),
    }
}
