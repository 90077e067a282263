//! How often a key is counted too high, over very many secrets.

use std::time::Duration;

use throttlekit::rate::Timestamp;
use throttlekit_core::overload::{Shape, SketchLimit};

use super::subject::seed_of;
use super::{Check, Config, Kind, Shield, ensure};
use throttlekit_conformance::Dice;

const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// More than is ever asked for, so that counts are seen and nobody is denied.
const UNITS: u64 = 1 << 31;
/// How many standard deviations of chance are allowed for: once in thirty thousand.
const DEVIATIONS: f64 = 4.0;

/// How often the key in question was counted too high by more than ε·N, in sketches of one shape.
#[derive(Clone, Copy, Debug)]
pub struct Early {
    /// Which limiter.
    pub kind: Kind,
    /// Its sketch.
    pub shape: Shape,
    /// What was asked before.
    pub load: &'static str,
    /// Sketches, each with its own secret.
    pub secrets: u64,
    /// Those in which it was.
    pub over: u64,
}

impl Early {
    /// The probability that is allowed: e to the minus depth, which is at most δ.
    pub fn delta(&self) -> f64 {
        (-f64::from(self.shape.depth())).exp()
    }

    /// The frequency that was measured.
    pub fn frequency(&self) -> f64 {
        self.over as f64 / self.secrets as f64
    }

    /// That the frequency is at most what is allowed, give or take chance.
    pub fn check(&self) -> Check {
        let (expected, seen) = (self.delta() * self.secrets as f64, self.over as f64);
        ensure(seen <= expected + DEVIATIONS * expected.sqrt() + 1.0, || {
            let (width, depth) = (self.shape.width(), self.shape.depth());
            format!("{:?} {width}×{depth}, {}: {seen} of {} beyond ε·N", self.kind, self.load, self.secrets)
        })
    }
}

/// Widths that are even, odd and powers of two.
const SHAPES: [(u32, u32); 6] = [(272, 7), (512, 4), (272, 2), (256, 3), (99, 5), (30, 1)];

/// Keys and costs, chosen without knowing the secret.
type Load = fn(&Shape, &mut Dice) -> Vec<(u64, u64)>;

/// What is asked for before the count in question is looked at.
const LOADS: [(&str, Load); 3] = [
    // As many busy keys as make a shared counter just too high: where the bound is nearest.
    ("as busy as hurts", |shape, _| {
        let busy = (f64::from(shape.width()) / std::f64::consts::E).ceil() as u64 - 1;
        (1..=busy.max(1)).map(|key| (key, 1_000)).collect()
    }),
    ("a thousand alike", |_, _| (1..=1_000).map(|key| (key, 1)).collect()),
    ("some far busier", |_, dice| (1..=300).map(|key| (key, dice.any_size(1 << 12).max(1))).collect()),
];

/// Measures every shape under every load.
pub fn early_denials(kind: Kind, secrets: u64, make: impl Fn(&Config) -> Box<dyn Shield>) -> Vec<Early> {
    let limit = SketchLimit::new(UNITS, Duration::from_secs(60)).expect("a limit");
    let mut all = Vec::new();
    for (width, depth) in SHAPES {
        let shape = Shape::new(width, depth).expect("a shape");
        for (name, load) in LOADS {
            // Long loads take a part of the secrets.
            let secrets = (secrets * 100 / load(&shape, &mut Dice::new(0)).len() as u64).clamp(1, secrets);
            let beyond = |secret: &u64| {
                let config = Config { limit, shape, hot_keys: 8, seed: seed_of(*secret) };
                let load = load(&shape, &mut Dice::new(*secret));
                is_beyond(&mut *make(&config), &shape, &load)
            };
            let over = (0..secrets).filter(beyond).count() as u64;
            all.push(Early { kind, shape, load: name, secrets, over });
        }
    }
    all
}

/// Whether key 0, which asked for nothing, is counted for more than ε of all units.
fn is_beyond(shield: &mut dyn Shield, shape: &Shape, load: &[(u64, u64)]) -> bool {
    let mut total = 0;
    for (key, cost) in load {
        shield.check(*key, *cost, NOON);
        total += cost;
    }
    let counted = UNITS - shield.check(0, 0, NOON).remaining;
    counted as f64 > std::f64::consts::E / f64::from(shape.width()) * total as f64
}
