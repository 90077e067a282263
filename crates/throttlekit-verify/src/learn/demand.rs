//! Families of demand for a sizer.

use throttlekit_conformance::Dice;

/// Generates the demand of one window after another. Some families look at the sizer's batch first, as an
/// adversary would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names and `next` say it")]
pub enum Family {
    Steady,
    Random,
    Alternating,
    Adversary,
    Zipf,
    Bursts,
    Bait,
    Ramp,
    Daily,
    Moves,
    Wander,
}

/// Demand whose best batch is constant, or that is made to mislead: regret against the best fixed batch is
/// bounded.
pub const HOLDING: [Family; 7] = [
    Family::Steady,
    Family::Random,
    Family::Alternating,
    Family::Adversary,
    Family::Zipf,
    Family::Bursts,
    Family::Bait,
];

/// Demand that moves by orders of magnitude: no fixed batch is good.
pub const DRIFTING: [Family; 4] = [Family::Ramp, Family::Daily, Family::Moves, Family::Wander];

/// A day of [`Family::Daily`], in windows.
const DAY: u64 = 1_440;
/// The duration of each level of [`Family::Moves`], in windows.
const STAY: u64 = 250;

/// A sequence of one family.
#[derive(Clone, Debug)]
pub struct Demand {
    family: Family,
    dice: Dice,
    window: u64,
    windows: u64,
    level: f64,
}

impl Demand {
    /// Creates the sequence of this seed, for this many windows.
    pub fn new(family: Family, seed: u64, windows: u64) -> Self {
        Self { family, dice: Dice::new(seed), window: 0, windows, level: 1_000.0 }
    }

    /// Returns the demand of the next window, for which the sizer chose this batch.
    pub fn next(&mut self, batch: u64) -> u64 {
        self.window += 1;
        let window = self.window;
        match self.family {
            Family::Steady => 5_000,
            Family::Random => self.dice.between(0, 10_000),
            Family::Alternating => [50, 50_000][(window % 2) as usize],
            // The end for which the batch is worse, so that it is never right twice.
            Family::Adversary => {
                if batch < 160 {
                    50_000
                } else {
                    50
                }
            }
            Family::Zipf => self.zipf(),
            Family::Bursts => {
                if self.dice.once_in(20) {
                    self.dice.between(50_000, 150_000)
                } else {
                    0
                }
            }
            // Just long enough to be trusted, then the opposite.
            Family::Bait => {
                if window.is_multiple_of(17) {
                    200_000
                } else {
                    100
                }
            }
            Family::Ramp => self.noisy(10.0 * 1e5f64.powf(window as f64 / self.windows as f64)),
            Family::Daily => self.daily(),
            Family::Moves => self.moves(),
            Family::Wander => self.wander(),
        }
    }

    /// Draws from a Zipf law: above x with probability (100/x)^1.2, cut at 10⁶. Uncut, its variance would be
    /// infinite.
    fn zipf(&mut self) -> u64 {
        (100.0 / self.unit().powf(1.0 / 1.2)).min(1e6) as u64
    }

    fn daily(&mut self) -> u64 {
        let hour = (self.window % DAY) as f64 / DAY as f64;
        self.noisy(3_000.0 * 300f64.powf((hour * std::f64::consts::TAU).sin()))
    }

    fn moves(&mut self) -> u64 {
        if self.window % STAY == 1 {
            self.level = 10f64.powf(1.0 + 5.0 * self.unit());
        }
        self.noisy(self.level)
    }

    fn wander(&mut self) -> u64 {
        self.level = (self.level * 1.05f64.powf(4.0 * self.unit() - 2.0)).clamp(100.0, 1e6);
        self.noisy(self.level)
    }

    /// Returns the level plus or minus a half.
    fn noisy(&mut self, level: f64) -> u64 {
        (level * (0.5 + self.unit())) as u64
    }

    /// Returns a number above 0, at most 1.
    fn unit(&mut self) -> f64 {
        (self.dice.below(1 << 52) + 1) as f64 / (1u64 << 52) as f64
    }
}
