//! Two threads and a window that ends repeatedly, with exact counts for each key and window.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use throttlekit::rate::Timestamp;
use throttlekit_core::overload::{Shape, SketchLimit};

use super::subject::{SharedShield, seed_of};
use super::{Check, Config, Kind, ensure};
use throttlekit_conformance::Dice;

const KEYS: u64 = 16;
const LIMIT: u64 = 50;
const LENGTH: Duration = Duration::from_secs(1);
const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// The number of requests of a thread before it advances the clock.
const ASKS_PER_WINDOW: u64 = 400;

/// Checks that no key is admitted more than its limit in any window, whatever two threads do at once.
pub fn check_threads(kind: Kind, asks: u64, make: impl Fn(Kind, &Config) -> Box<dyn SharedShield>) -> Check {
    let limit = SketchLimit::new(LIMIT, LENGTH).expect("a limit");
    let shape = Shape::new(64, 3).expect("a shape");
    let shield = make(kind, &Config { limit, shape, hot_keys: 8, seed: seed_of(7) });
    shield.clock().set(NOON);
    let windows = 2 * asks / ASKS_PER_WINDOW + 2;
    let admitted: Vec<AtomicU64> = (0..windows * KEYS).map(|_| AtomicU64::new(0)).collect();
    let both_are_there = Barrier::new(2);
    let work = |number: u64| {
        let mut dice = Dice::new(number);
        both_are_there.wait();
        for ask in 0..asks {
            if ask % ASKS_PER_WINDOW == ASKS_PER_WINDOW - 1 {
                shield.clock().advance(LENGTH);
            }
            let (key, cost) = (dice.below(KEYS), dice.between(1, 3));
            let answer = shield.check(key, cost);
            if answer.allowed {
                let window = answer.reset_at.since(NOON).as_secs() - 1;
                admitted[(window * KEYS + key) as usize].fetch_add(cost, Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| work(1));
        work(2);
    });
    let most = admitted.iter().map(|count| count.load(Relaxed)).max().unwrap_or(0);
    ensure(most <= LIMIT, || format!("{kind:?}, two threads: a key was admitted {most} of {LIMIT}"))?;
    ensure(most > LIMIT / 2, || format!("{kind:?}, two threads: no key came near its limit"))
}
