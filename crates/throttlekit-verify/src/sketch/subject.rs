//! The subjects: limiters over a sketch, on one thread and shared by two.

use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::hash::SecretHash;
use throttlekit::limiter::Sketch;
use throttlekit::rate::Timestamp;
use throttlekit::{Budget, Decision, Limiter};
use throttlekit_conformance::Dice;
use throttlekit_core::overload::{Shape, SketchLimit};

/// A kind of limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Kind {
    Sketch,
    Flood,
}

impl Kind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Sketch, Self::Flood];
}

/// The configuration of a limiter.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Its limit.
    pub limit: SketchLimit,
    /// Its sketch.
    pub shape: Shape,
    /// Keys that a [`Kind::Flood`] counts exactly.
    pub hot_keys: usize,
    /// Its secret.
    pub seed: [u8; 16],
}

impl Config {
    /// Draws any configuration: mostly sketches so small that keys share counters.
    pub fn random(kind: Kind, dice: &mut Dice) -> Self {
        let width = match dice.below(4) {
            0 => dice.between(1, 4),
            1 => dice.between(5, 64),
            2 => 1 << dice.below(10),
            _ => 272,
        };
        let shape = Shape::new(width as u32, dice.between(1, 9) as u32).expect("a shape");
        let units = match dice.below(8) {
            0 => 1,
            // Costs that bring counters to their maximum.
            1 => u64::from(SketchLimit::UNITS_MAX) - dice.below(3),
            _ => dice.between(2, 200),
        };
        let length = Duration::from_nanos(dice.any_size(3_600_000_000_000).max(1));
        let hot_keys = if kind == Kind::Flood { dice.between(1, 40) as usize } else { 0 };
        let limit = SketchLimit::new(units, length).expect("a limit");
        Self { limit, shape, hot_keys, seed: seed_of(dice.roll()) }
    }

    /// Returns the hash of keys in this limiter.
    pub fn hash(&self) -> SecretHash {
        SecretHash::with_seed(self.seed)
    }
}

/// Derives a secret from a number.
pub(super) fn seed_of(number: u64) -> [u8; 16] {
    let mut dice = Dice::new(number);
    let mut seed = [0; 16];
    seed[..8].copy_from_slice(&dice.roll().to_le_bytes());
    seed[8..].copy_from_slice(&dice.roll().to_le_bytes());
    seed
}

/// A limiter for one thread.
pub trait Shield {
    /// Decides a request.
    fn check(&mut self, key: u64, cost: u64, now: Timestamp) -> Decision;
}

/// A limiter shared by threads, with its clock.
pub trait SharedShield: Sync {
    /// Decides a request.
    fn check(&self, key: u64, cost: u64) -> Decision;
    /// Returns the clock.
    fn clock(&self) -> &ManualClock;
}

struct Shipped {
    limiter: Limiter<ManualClock, SecretHash>,
    clock: ManualClock,
}

impl Shipped {
    fn new(kind: Kind, config: &Config) -> Self {
        let clock = ManualClock::default();
        let hot_keys = if kind == Kind::Flood { config.hot_keys.max(1) } else { 0 };
        let limit = Budget::per(u64::from(config.limit.units()), config.limit.length());
        let builder = Limiter::builder(limit).sketch(Sketch::with_shape(config.shape).hot_keys(hot_keys));
        let limiter = builder.clock(clock.clone()).hash_with(config.hash()).build();
        Self { limiter: limiter.expect("a limiter"), clock }
    }
}

/// Creates the production limiter with this configuration.
pub fn shipped(kind: Kind, config: &Config) -> Box<dyn Shield> {
    Box::new(Shipped::new(kind, config))
}

/// Creates the same, shared by threads.
pub(super) fn shared(kind: Kind, config: &Config) -> Box<dyn SharedShield> {
    Box::new(Shipped::new(kind, config))
}

impl Shield for Shipped {
    fn check(&mut self, key: u64, cost: u64, now: Timestamp) -> Decision {
        self.clock.set(now);
        self.limiter.check((&key.to_le_bytes(), cost))
    }
}

impl SharedShield for Shipped {
    fn check(&self, key: u64, cost: u64) -> Decision {
        self.limiter.check((&key.to_le_bytes(), cost))
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}
