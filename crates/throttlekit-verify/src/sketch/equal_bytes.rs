//! The benefit of counting the busiest keys exactly: early denials compared with a plain sketch of the same
//! size.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::overload::{Shape, SketchLimit};

use super::subject::seed_of;
use super::{Config, Kind, shipped};
use throttlekit_conformance::Dice;

const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const LIMIT: u64 = 100;
/// The size for ε 0.01 and δ 0.001.
const BYTES: usize = 7_616;
/// In the same bytes: 192 keys of 16 bytes, and 227 columns in five rows.
const HOT_KEYS: usize = 192;
const TAIL: (u32, u32) = (227, 5);
const _: () = assert!(HOT_KEYS * 16 + (TAIL.0 * TAIL.1 * 4) as usize <= BYTES);

/// One flood, and the number of early denials of quiet keys, which their own count would allow.
#[derive(Clone, Copy, Debug)]
pub struct Contest {
    /// Keys that request ten times their limit.
    pub attackers: u64,
    /// Keys that request five times.
    pub quiet: u64,
    /// Requests of quiet keys.
    pub asks: u64,
    /// Early denials of a plain [`Sketch`](throttlekit::limiter::Sketch).
    pub sketch: u64,
    /// Early denials of one with hot keys.
    pub flood: u64,
}

/// Attackers and quiet keys of each flood.
pub const FLOODS: [(u64, u64); 7] =
    [(100, 500), (150, 500), (200, 500), (300, 500), (400, 500), (150, 2_000), (150, 5_000)];

/// Runs a flood of these numbers of attackers and quiet keys, with `secrets` secrets.
pub fn contest(attackers: u64, quiet: u64, secrets: u64) -> Contest {
    let mut contest = Contest { attackers, quiet, asks: 0, sketch: 0, flood: 0 };
    for secret in 0..secrets {
        let asks = asks(attackers, quiet, &mut Dice::new(secret));
        contest.asks += asks.iter().filter(|key| **key >= attackers).count() as u64;
        contest.sketch += denied_early(Kind::Sketch, (272, 7), attackers, &asks, secret);
        contest.flood += denied_early(Kind::Flood, TAIL, attackers, &asks, secret);
    }
    contest
}

/// Returns the requests in random order: a thousand of each attacker, five of each quiet key.
fn asks(attackers: u64, quiet: u64, dice: &mut Dice) -> Vec<u64> {
    let attack = (0..attackers).flat_map(|key| std::iter::repeat_n(key, 10 * LIMIT as usize));
    let calm = (attackers..attackers + quiet).flat_map(|key| std::iter::repeat_n(key, 5));
    let mut all: Vec<u64> = attack.chain(calm).collect();
    for last in (1..all.len()).rev() {
        all.swap(last, dice.below(last as u64 + 1) as usize);
    }
    all
}

fn denied_early(kind: Kind, (width, depth): (u32, u32), attackers: u64, asks: &[u64], secret: u64) -> u64 {
    let limit = SketchLimit::new(LIMIT, Duration::from_secs(60)).expect("a limit");
    let shape = Shape::new(width, depth).expect("a shape");
    let mut shield = shipped(kind, &Config { limit, shape, hot_keys: HOT_KEYS, seed: seed_of(secret) });
    let denied = asks.iter().filter(|key| !shield.check(**key, 1, NOON).allowed && **key >= attackers);
    denied.count() as u64
}
