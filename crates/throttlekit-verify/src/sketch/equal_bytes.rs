//! What counting the busiest one by one is worth: early denials beside a plain sketch of as many bytes.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::overload::{Shape, SketchLimit};

use super::subject::seed_of;
use super::{Config, Kind, shipped};
use throttlekit_conformance::Dice;

const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const LIMIT: u64 = 100;
/// What ε 0.01 and δ 0.001 take.
const BYTES: usize = 7_616;
/// Of the same bytes: 192 keys of 16 bytes, and 227 columns in five rows.
const HOT_KEYS: usize = 192;
const TAIL: (u32, u32) = (227, 5);
const _: () = assert!(HOT_KEYS * 16 + (TAIL.0 * TAIL.1 * 4) as usize <= BYTES);

/// One flood, and how many quiet keys were denied an ask that their own count allows.
#[derive(Clone, Copy, Debug)]
pub struct Contest {
    /// Keys that ask for ten times their limit.
    pub attackers: u64,
    /// Keys that ask five times.
    pub quiet: u64,
    /// Asks of quiet keys.
    pub asks: u64,
    /// Those denied early by a plain [`Sketch`](throttlekit::limiter::Sketch).
    pub sketch: u64,
    /// And by one with hot keys.
    pub flood: u64,
}

/// Attackers and quiet keys of the floods that are tried.
pub const FLOODS: [(u64, u64); 7] =
    [(100, 500), (150, 500), (200, 500), (300, 500), (400, 500), (150, 2_000), (150, 5_000)];

/// A flood of so many attackers and quiet keys, with so many secrets.
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

/// Attackers ask a thousand times each, quiet keys five times, in no order.
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
