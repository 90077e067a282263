//! `bounded-memory` and `rate-exact` at once: threads that compete for a handful of cells while the clock
//! runs.
//!
//! In the first two tests there are more keys than cells, and the clock advances and now and then steps back:
//! keys are evicted all the time, and in any interleaving none gets more than its limit allows in the time
//! that passed. In the last two the keys fit, but each finds only cells that others left: all are added and
//! recycled at once, and then every unit is accounted for.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::hash::SecretHash;
use throttlekit::rate::Timestamp;
use throttlekit::{Call, Limit, Limiter, Rate};

const THREADS: u64 = 3;
const ROUNDS: u64 = 6_000;
const ROUNDS_PER_STEP: u64 = 6;
const KEYS: u64 = 100;
/// Bytes of each limit: cells for half of the keys.
const BUDGET: usize = 1 << 10;
/// Enough for a few keys of any state.
const BUDGET_FOR_NEWCOMERS: usize = 8 << 10;
const UNITS: u64 = 7;
const STEP: Duration = Duration::from_micros(20);
const MILLISECOND: Duration = Duration::from_millis(1);
const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// The maximum units of one key while this many periods pass.
type Bound = fn(u64) -> u64;

/// One of each kind of state.
fn limits() -> [(Limit, Bound); 4] {
    [
        (Limit::gcra(Rate::per(1, MILLISECOND).burst(UNITS)).unwrap(), |periods| UNITS + periods),
        (Limit::fixed_window(UNITS, MILLISECOND).unwrap(), |periods| UNITS * (periods + 1)),
        (Limit::sliding_window(UNITS, MILLISECOND).unwrap(), |periods| 2 * UNITS * (periods + 1)),
        (Limit::sliding_log(UNITS, MILLISECOND).unwrap(), |periods| UNITS * (periods + 1)),
    ]
}

/// Lets threads send requests in random order, and checks every key against the bound.
fn fight(name: &str, bound: Bound, clock: &ManualClock, ask: impl Fn(&[String], u64) -> Vec<bool> + Sync) {
    let admitted: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for seed in 1..=THREADS {
            let (admitted, ask) = (&admitted, &ask);
            let winds = (seed == 1).then_some(clock);
            scope.spawn(move || one_fighter(seed, winds, admitted, ask));
        }
    });
    let most = bound((ROUNDS / ROUNDS_PER_STEP) * STEP.as_nanos() as u64 / MILLISECOND.as_nanos() as u64);
    let units: Vec<u64> = admitted.into_iter().map(AtomicU64::into_inner).collect();
    assert!(units.iter().all(|units| *units <= most), "{name}: at most {most} each, got {units:?}");
    assert!(units.iter().sum::<u64>() > most, "{name}: hardly anyone got in: {units:?}");
}

fn one_fighter(
    seed: u64,
    winds: Option<&ManualClock>,
    admitted: &[AtomicU64],
    ask: impl Fn(&[String], u64) -> Vec<bool>,
) {
    let mut dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut roll = |sides: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % sides
    };
    for round in 0..ROUNDS {
        if let Some(clock) = winds {
            wind(clock, round);
        }
        let who: Vec<u64> = (0..=roll(3)).map(|_| roll(KEYS)).collect();
        let keys: Vec<String> = who.iter().map(|key| format!("key-{key}")).collect();
        let cost = [0, 1, 1, 1, 2, 3, UNITS, UNITS + 1][roll(8) as usize];
        for (key, allowed) in who.into_iter().zip(ask(&keys, cost)) {
            admitted[key as usize].fetch_add(u64::from(allowed) * cost, Relaxed);
        }
    }
}

/// Advances the clock by a step every few rounds. For a few of them, now and then, it is two periods back: a
/// key that had recovered and lost its cell is in debt again then.
fn wind(clock: &ManualClock, round: u64) {
    let back = if round % 64 < 16 { 2 * MILLISECOND } else { Duration::ZERO };
    let reached = STEP * (round / ROUNDS_PER_STEP) as u32;
    clock.set(START + reached.saturating_sub(back));
}

#[test]
fn bounded_memory_with_threads_no_key_gets_more_than_its_limit_at_the_cap() {
    for (limit, bound) in limits() {
        let clock = ManualClock::at(START);
        let limiter: Limiter<_, SecretHash> =
            Limiter::builder(limit).clock(clock.clone()).memory_budget(BUDGET).build().unwrap();
        fight(&format!("{limit:?}"), bound, &clock, |keys, cost| match keys {
            [key] => vec![limiter.check((key, cost)).allowed],
            keys => {
                let decisions = limiter.check_many(keys.iter().map(|key| (key, cost)));
                decisions.iter().map(|decision| decision.allowed).collect()
            }
        });
    }
}

/// The second limit denies two requests in three, so most cells are held for nothing.
#[test]
fn bounded_memory_with_threads_no_key_gets_more_than_its_limit_among_several() {
    for (limit, bound) in limits() {
        let clock = ManualClock::at(START);
        let rare = Limit::gcra(Rate::per(1, STEP).burst(UNITS)).unwrap();
        let builder = Limiter::builder(limit).limit_by(1, "rare", rare).clock(clock.clone());
        let limits = builder.memory_budget(2 * BUDGET).build().unwrap();
        fight(&format!("{limit:?}"), bound, &clock, |keys, cost| {
            let both = |key: &String| limits.check(Call::by(key).and(&["all"]).cost(cost)).allowed;
            keys.iter().map(both).collect()
        });
    }
}

/// Few enough that, of the at least eight cells of a key, one is always free, even while each thread holds
/// one.
const NEWCOMERS: u64 = 5;

/// Repeatedly makes all cells idle, and lets threads race to put the same new keys into them. In each round
/// each key gets exactly its units: no charge is lost, none hits another key, no key is stored twice.
fn take_over(limit: Limit, rounds: u64, clock: &ManualClock, ask: impl Fn(&[String; 2]) -> [bool; 2] + Sync) {
    let admitted: Vec<AtomicU64> = (0..rounds * NEWCOMERS).map(|_| AtomicU64::new(0)).collect();
    let together = Barrier::new(THREADS as usize);
    let one = |thread: u64| {
        for round in 0..rounds {
            if together.wait().is_leader() {
                clock.set(START + 10 * MILLISECOND * round as u32);
            }
            together.wait();
            for turn in 0..UNITS * NEWCOMERS {
                let who = [turn + thread, 2 * turn + 1].map(|key| round * NEWCOMERS + key % NEWCOMERS);
                let allowed = ask(&who.map(|key| format!("key-{key}")));
                for (key, allowed) in who.into_iter().zip(allowed) {
                    admitted[key as usize].fetch_add(u64::from(allowed), Relaxed);
                }
            }
        }
    };
    thread::scope(|scope| {
        let one = &one;
        (1..=THREADS).for_each(|thread| _ = scope.spawn(move || one(thread)));
    });
    let wrong = admitted.iter().filter(|units| units.load(Relaxed) != UNITS).count();
    assert_eq!(wrong, 0, "of {} keys, {limit:?}", admitted.len());
}

#[test]
fn rate_exact_with_threads_keys_that_take_over_idle_cells_get_exactly_their_units() {
    for (limit, _) in limits() {
        let clock = ManualClock::at(START);
        let limiter =
            Limiter::builder(limit).clock(clock.clone()).memory_budget(BUDGET_FOR_NEWCOMERS).build().unwrap();
        take_over(limit, 400, &clock, |keys| {
            let [one, both] = [limiter.check(&keys[0]), limiter.check_many(&keys[1..])[0]];
            [one.allowed, both.allowed]
        });
    }
}

#[test]
fn rate_exact_with_threads_keys_of_several_limits_get_exactly_their_units() {
    for (limit, _) in limits() {
        let clock = ManualClock::at(START);
        let many = Limit::gcra(Rate::per(1_000_000, MILLISECOND)).unwrap();
        let builder = Limiter::builder(limit).limit_by(1, "many", many).clock(clock.clone());
        let limits = builder.memory_budget(2 * BUDGET_FOR_NEWCOMERS).build().unwrap();
        let both = |key: &String| limits.check(Call::by(key).and(&["all"])).allowed;
        take_over(limit, 400, &clock, |keys| keys.each_ref().map(both));
    }
}
