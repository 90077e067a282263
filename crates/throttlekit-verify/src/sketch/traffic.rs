//! Random requests: floods of several kinds.

use std::time::Duration;

use throttlekit::hash::KeyHash;
use throttlekit::rate::Timestamp;
use throttlekit_core::overload::LinearSketch;

use super::Config;
use throttlekit_conformance::Dice;

/// The number of keys, besides those that never return.
const KEYS: u64 = 512;
const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// The first of the keys that never return.
const STRANGERS: u64 = 1 << 32;

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The key.
    pub key: u64,
    /// The cost.
    pub cost: u64,
    /// The time.
    pub now: Timestamp,
}

/// A kind of flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flood {
    /// A few keys again and again.
    Hammer,
    /// Many keys, some far more often.
    Skewed,
    /// Keys that never return, with some known ones among them.
    Strangers,
    /// Keys that share a counter with a victim, by an attacker with the secret.
    Colliding,
}

/// An endless sequence of requests.
pub struct Traffic {
    config: Config,
    flood: Flood,
    dice: Dice,
    now: Timestamp,
    stranger: u64,
    /// Keys that share a counter with key 0.
    colliding: Vec<u64>,
}

impl Traffic {
    /// Creates traffic of a random kind against a limiter with this configuration.
    pub fn new(config: &Config, dice: &mut Dice) -> Self {
        let flood = dice.pick(&[Flood::Hammer, Flood::Skewed, Flood::Strangers, Flood::Colliding]);
        let colliding = if flood == Flood::Colliding { colliding(config) } else { Vec::new() };
        let (dice, now) = (Dice::new(dice.roll()), NOON);
        Self { config: *config, flood, dice, now, stranger: STRANGERS, colliding }
    }

    /// Returns the next request.
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> Asked {
        self.pass_time();
        Asked { key: self.key(), cost: self.cost(), now: self.now }
    }

    fn key(&mut self) -> u64 {
        let dice = &mut self.dice;
        match self.flood {
            Flood::Hammer => dice.below(4),
            Flood::Skewed => dice.any_size(KEYS - 1),
            Flood::Colliding if !self.colliding.is_empty() && !dice.once_in(4) => dice.pick(&self.colliding),
            Flood::Strangers if !dice.once_in(4) => {
                self.stranger += 1;
                self.stranger
            }
            Flood::Colliding | Flood::Strangers => dice.below(8),
        }
    }

    fn cost(&mut self) -> u64 {
        let limit = u64::from(self.config.limit.units());
        match self.dice.below(64) {
            0 => 0,
            1 => limit,
            2 => limit + 1,
            3 => u64::MAX,
            4..24 => self.dice.between(1, 5),
            24..32 => self.dice.between(1, limit.div_ceil(3)),
            _ if limit > 1_000 => self.dice.between(1, limit / 50),
            _ => 1,
        }
    }

    /// Advances the time: most requests come at once; some windows end, some are skipped, and clocks step
    /// back.
    fn pass_time(&mut self) {
        let length = self.config.limit.length();
        match self.dice.below(2_000) {
            0 => self.now = self.config.limit.ends_at(self.now),
            1 => self.now = Timestamp::from_nanos(self.config.limit.ends_at(self.now).as_nanos() - 1),
            2 => self.now = self.now + length * self.dice.between(1, 5) as u32,
            3 => {
                let back = length * self.dice.between(1, 5) as u32;
                self.now = Timestamp::from_nanos(self.now.as_nanos().saturating_sub(back.as_nanos() as u64));
            }
            4..24 => self.now = self.now + Duration::from_nanos(self.dice.below(length.as_nanos() as u64)),
            _ => {}
        }
    }
}

/// Returns keys that share their counter with key 0 in the first row, whose column does not depend on the
/// number of rows.
fn colliding(config: &Config) -> Vec<u64> {
    let row = throttlekit::overload::Shape::new(config.shape.width(), 1).expect("a row");
    let hash = config.hash();
    let of = |key: u64| hash.fingerprint(&key.to_le_bytes());
    let mut victim = LinearSketch::new(row, 0);
    victim.observe(of(0), 1);
    (1..KEYS * 8).filter(|key| victim.estimate(of(*key)) > 0).take(64).collect()
}
