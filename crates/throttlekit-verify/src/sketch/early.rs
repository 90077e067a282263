//! The frequency with which a key is counted too high, over very many secrets.

use std::time::Duration;

use throttlekit::rate::Timestamp;
use throttlekit_core::overload::{Shape, SketchLimit};

use super::subject::seed_of;
use super::{Check, Config, Kind, Shield, ensure};
use throttlekit_conformance::Dice;

const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// More than is ever requested, so that counts are visible and nothing is denied.
const UNITS: u64 = SketchLimit::UNITS_MAX as u64;
/// The allowance for chance, in standard deviations: once in thirty thousand.
const DEVIATIONS: f64 = 4.0;

/// The number of times that the probed key was counted too high by more than ε·N, in sketches of one shape.
#[derive(Clone, Copy, Debug)]
pub struct Early {
    /// The limiter.
    pub kind: Kind,
    /// Its sketch.
    pub shape: Shape,
    /// The load before the probe.
    pub load: &'static str,
    /// Sketches, each with its own secret.
    pub secrets: u64,
    /// Sketches with an overestimate.
    pub over: u64,
}

impl Early {
    /// Returns the allowed probability: e to the minus depth, which is at most δ.
    pub fn delta(&self) -> f64 {
        (-f64::from(self.shape.depth())).exp()
    }

    /// Returns the measured frequency.
    pub fn frequency(&self) -> f64 {
        self.over as f64 / self.secrets as f64
    }

    /// Checks that the frequency is at most the allowed one, with the allowance for chance.
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

/// Keys and costs, chosen without knowledge of the secret.
type Load = fn(&Shape, &mut Dice) -> Vec<(u64, u64)>;

/// The loads before the probe.
const LOADS: [(&str, Load); 3] = [
    // Just enough busy keys to make a shared counter too high: where the bound is nearest.
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
            // Long loads use a part of the secrets.
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

/// Returns `true` if key 0, which requested nothing, is counted for more than ε of all units.
fn is_beyond(shield: &mut dyn Shield, shape: &Shape, load: &[(u64, u64)]) -> bool {
    let mut total = 0;
    for (key, cost) in load {
        shield.check(*key, *cost, NOON);
        total += cost;
    }
    let counted = UNITS - shield.check(0, 0, NOON).remaining;
    counted as f64 > std::f64::consts::E / f64::from(shape.width()) * total as f64
}
