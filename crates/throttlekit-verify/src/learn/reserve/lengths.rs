//! Families of stream lengths for reservations.

use throttlekit_core::learn::ReservationOptions;

use throttlekit_conformance::Dice;

/// Generates the length of one stream after another. One family looks at the reservation first, as an
/// adversary would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names and `next` say it")]
pub enum Family {
    HeavyTailed,
    Constant,
    Bimodal,
    Uniform,
    Alternating,
    Adversary,
    Drift,
}

/// Every family.
pub const FAMILIES: [Family; 7] = [
    Family::HeavyTailed,
    Family::Constant,
    Family::Bimodal,
    Family::Uniform,
    Family::Alternating,
    Family::Adversary,
    Family::Drift,
];

/// Draws a length as gateways see them: mean 211, median 129, one stream in a hundred above 601 tokens, and
/// of these one in a hundred above 6,010. Linear between the quantiles below, then a Pareto law with
/// exponent 2.
pub fn heavy_tailed(dice: &mut Dice) -> u64 {
    const QUANTILES: [(f64, f64); 4] = [(0.0, 7.0), (0.5, 129.0), (0.9, 456.0), (0.99, 601.0)];
    let at = unit(dice);
    let above = QUANTILES.iter().position(|(part, _)| at <= *part);
    let length = match above {
        Some(i) => {
            let ((from, low), (to, high)) = (QUANTILES[i.max(1) - 1], QUANTILES[i.max(1)]);
            low + (high - low) * (at - from) / (to - from)
        }
        // Beyond the last quantile: above x with a probability of (601/x)² of what is left.
        None => 601.0 / unit(dice).sqrt(),
    };
    length.round() as u64
}

/// Returns a number above 0, at most 1.
fn unit(dice: &mut Dice) -> f64 {
    (dice.below(1 << 52) + 1) as f64 / (1u64 << 52) as f64
}

/// A sequence of one family.
#[derive(Clone, Debug)]
pub struct Lengths {
    family: Family,
    dice: Dice,
    max: u64,
    stream: u64,
    streams: u64,
}

impl Lengths {
    /// Creates the sequence of this seed, for this many streams and for reservations with these options.
    pub fn new(family: Family, seed: u64, streams: u64, options: &ReservationOptions) -> Self {
        Self { family, dice: Dice::new(seed), max: options.max, stream: 0, streams }
    }

    /// Returns the length of the next stream, for which `reserved` tokens are reserved.
    pub fn next(&mut self, reserved: u64) -> u64 {
        self.stream += 1;
        match self.family {
            Family::HeavyTailed => heavy_tailed(&mut self.dice),
            Family::Constant => 170,
            Family::Bimodal => {
                if self.dice.below(10) < 7 {
                    self.dice.between(10, 30)
                } else {
                    self.dice.between(800, 1_000)
                }
            }
            Family::Uniform => self.dice.between(0, self.max),
            Family::Alternating => [0, self.max][(self.stream % 2) as usize],
            // The farther end, so that no reservation is right twice.
            Family::Adversary => {
                if reserved > self.max / 2 {
                    0
                } else {
                    self.max
                }
            }
            Family::Drift => {
                let grown = 1.0 + 9.0 * self.stream as f64 / self.streams as f64;
                (heavy_tailed(&mut self.dice) as f64 * grown / 3.0) as u64
            }
        }
    }
}
