//! `bounded-memory`: for any keys, memory stays within its budget and no key gets a second budget of its own.

use std::collections::HashMap;
use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::hash::SecretHash;
use throttlekit::limiter::LimiterBuilder;
use throttlekit::rate::{Cadence, Timestamp};
use throttlekit::{Call, Limit, Limiter, Rate};

const BURST: u64 = 5;
/// Bytes for some hundred keys of one word, and for a few dozen others.
const BUDGET: usize = 4 << 10;
/// Far more than that.
const KEYS: u64 = 2_560;
const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// Limits that refill nothing while the clock stands still, one for each kind of state a store keeps.
fn limits() -> [Limit; 6] {
    let hour = Duration::from_secs(3600);
    [
        Limit::gcra(Rate::per(BURST, hour)).unwrap(),
        Limit::gcra(Rate::per(999_983, hour).burst(BURST)).unwrap(), // no word form: a unit is no whole tick
        Limit::quota(BURST, Cadence::Month { utc_offset_minutes: 60 }).unwrap(),
        Limit::token_budget(BURST, hour).unwrap(),
        Limit::sliding_window(BURST, hour).unwrap(),
        Limit::sliding_log(BURST, hour).unwrap(),
    ]
}

fn limiter(limit: Limit) -> Limiter<ManualClock, SecretHash> {
    Limiter::builder(limit).clock(ManualClock::at(NOON)).memory_budget(BUDGET).build().unwrap()
}

/// Sends repeated requests of far more keys than there is capacity for, in random order. Returns an error
/// with the key that got more than its burst, if there is one.
fn flood(mut allowed: impl FnMut(&str) -> bool) -> Result<(), String> {
    let mut admitted = HashMap::new();
    let mut dice: u64 = 0x9E37_79B9_7F4A_7C15;
    for _ in 0..60_000 {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let key = format!("key-{}", dice % KEYS);
        let count = admitted.entry(key.clone()).or_insert(0_u64);
        *count += u64::from(allowed(&key));
        if *count > BURST {
            return Err(format!("{key} was admitted {count} times, its burst is {BURST}"));
        }
    }
    Ok(())
}

#[test]
fn bounded_memory_no_key_exceeds_its_burst_for_any_number_of_keys() {
    for limit in limits() {
        let limiter = limiter(limit);
        flood(|key| limiter.check(key).allowed).unwrap_or_else(|found| panic!("{limit:?}: {found}"));
    }
}

#[test]
fn bounded_memory_the_invariant_finds_a_store_that_forgets_whom_it_drops() {
    let mut used: HashMap<String, u64> = HashMap::new();
    let found = flood(|key| {
        if !used.contains_key(key) && used.len() >= 64 {
            let victim = used.keys().next().cloned().expect("a full store");
            used.remove(&victim);
        }
        let count = used.entry(key.to_owned()).or_default();
        *count += 1;
        *count <= BURST
    });
    assert!(found.is_err());
}

#[test]
fn bounded_memory_a_key_at_its_limit_stays_there_through_a_flood() {
    for limit in limits() {
        let limiter = limiter(limit);
        while limiter.check("abuser").allowed {}
        for stranger in 0..50_000_u32 {
            limiter.check(&stranger.to_be_bytes());
            assert!(!limiter.check("abuser").allowed, "{limit:?}: free again after {stranger} strangers");
        }
    }
}

#[test]
fn bounded_memory_keys_take_no_more_than_the_budget() {
    for limit in limits() {
        for budget in [64 << 10, 1 << 20] {
            let clock = ManualClock::at(NOON);
            let limiter = Limiter::builder(limit).clock(clock).memory_budget(budget).build().unwrap();
            for stranger in 0..100_000_u32 {
                limiter.check(&stranger.to_be_bytes());
            }
            let memory = limiter.memory();
            assert!(
                memory.used_bytes <= budget && memory.used_bytes * 10 > budget * 5,
                "{limit:?}: {memory:?}"
            );
            assert!(memory.live_keys * 300 > budget, "{limit:?}: {memory:?}");
            assert!(memory.estimated > 0, "{limit:?}: {memory:?}");
        }
    }
}

#[test]
fn bounded_memory_capacity_returns_when_keys_expire() {
    for limit in limits() {
        let clock = ManualClock::at(NOON);
        let limiter = Limiter::builder(limit).clock(clock.clone()).memory_budget(BUDGET).build().unwrap();
        for stranger in 0..20_000_u32 {
            limiter.check(&stranger.to_be_bytes());
        }
        clock.advance(Duration::from_secs(32 * 86_400));
        assert_eq!(limiter.memory().live_keys, 0);
        for newcomer in 0..20_usize {
            let first = limiter.check(Call::by(&newcomer.to_be_bytes()));
            assert_eq!((first.allowed, first.remaining), (true, BURST - 1), "{limit:?}: {newcomer}");
        }
    }
}

/// An expired key lost its cell to another; then the clock steps back to a time at which it was still
/// limited.
#[test]
fn clock_back_a_key_that_lost_its_cell_does_not_come_back_fresh() {
    for limit in limits() {
        let clock = ManualClock::at(NOON);
        let limiter = Limiter::builder(limit).clock(clock.clone()).memory_budget(1 << 10).build().unwrap();
        while limiter.check("spent").allowed {}
        clock.advance(Duration::from_secs(32 * 86_400));
        for stranger in 0..1_000_u32 {
            limiter.check(&stranger.to_be_bytes());
        }
        clock.set(NOON);
        assert!(!limiter.check("spent").allowed, "{limit:?}");
    }
}

/// The same with empty cells left: a spent key that comes back finds one of those, and only the state kept
/// when it lost its cell shows its debt. For states larger than a word, an estimate that had expired once may
/// be forgotten, so those have capacity here.
#[test]
fn clock_back_a_key_that_lost_its_cell_owes_in_an_empty_one_too() {
    for limit in limits() {
        let clock = ManualClock::at(NOON);
        let is_word = matches!(limit, Limit::Gcra(_) | Limit::Window(_));
        let budget = if is_word { BUDGET } else { 16 * BUDGET };
        let limiter = Limiter::builder(limit).clock(clock.clone()).memory_budget(budget).build().unwrap();
        let spent: Vec<String> = (0..20).map(|key| format!("spent-{key}")).collect();
        for key in &spent {
            assert!(limiter.check(Call::by(key).cost(BURST)).allowed, "{limit:?}: {key}");
        }
        clock.advance(Duration::from_secs(32 * 86_400));
        for stranger in 0..20_usize {
            limiter.check(&stranger.to_be_bytes());
        }
        clock.set(NOON);
        let fresh = spent.iter().filter(|key| limiter.check(*key).allowed).count();
        assert_eq!(fresh, 0, "{limit:?}");
    }
}

#[test]
fn bounded_memory_several_limits_keep_their_budget_whatever_else_is_chosen() {
    let hour = Duration::from_secs(3600);
    let limits = || Limiter::builder(Rate::per(BURST, hour)).limit("other", Rate::per(BURST, hour));
    let passed = |builder: LimiterBuilder<ManualClock>| {
        let limits = builder.build().unwrap();
        (0..5_000_u32).filter(|key| limits.check(&key.to_be_bytes()).allowed).count()
    };
    assert_eq!(passed(limits().clock(ManualClock::at(NOON))), 5_000, "all of them fit the default");
    let few = passed(limits().memory_budget(2 << 10).clock(ManualClock::at(NOON)));
    assert!(few < 500, "{few} newcomers passed a table of a kibibyte");
}
