//! `bounded-memory`: whatever keys come, memory stays within its cap and no key gets a second budget.

use std::collections::HashMap;
use std::time::Duration;

use throttlekit::{Ask, Cadence, Limit, Limiter, Limits, ManualClock, Rate, SecretHash, Timestamp};

const BURST: u64 = 5;
const KEYS_MAX: usize = 64;
const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// Limits that give nothing back while the clock stands, one for each kind of state a store keeps.
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
    Limiter::builder(limit).clock(ManualClock::at(NOON)).keys_max(KEYS_MAX).build().unwrap()
}

/// Far more keys than there is room for, each asking again and again in no order; tells which key got more than
/// its burst, if one did.
fn flood(mut allowed: impl FnMut(&str) -> bool) -> Result<(), String> {
    let mut admitted = HashMap::new();
    let mut dice: u64 = 0x9E37_79B9_7F4A_7C15;
    for _ in 0..60_000 {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let key = format!("key-{}", dice % (40 * KEYS_MAX as u64));
        let count = admitted.entry(key.clone()).or_insert(0_u64);
        *count += u64::from(allowed(&key));
        if *count > BURST {
            return Err(format!("{key} was admitted {count} times, its burst is {BURST}"));
        }
    }
    Ok(())
}

#[test]
fn bounded_memory_no_key_gets_more_than_its_burst_however_many_come() {
    for limit in limits() {
        let limiter = limiter(limit);
        flood(|key| limiter.check(key).allowed).unwrap_or_else(|found| panic!("{limit:?}: {found}"));
    }
}

#[test]
fn bounded_memory_the_law_finds_a_store_that_forgets_whom_it_drops() {
    let mut used: HashMap<String, u64> = HashMap::new();
    let found = flood(|key| {
        if !used.contains_key(key) && used.len() >= KEYS_MAX {
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

/// What is kept is bounded: live keys never exceed the cells (nine for four keys) or the map's cap.
#[test]
fn bounded_memory_live_keys_stay_within_the_cap() {
    for limit in limits() {
        let limiter = limiter(limit);
        for stranger in 0..20_000_u32 {
            limiter.check(&stranger.to_be_bytes());
        }
        let live = limiter.live_keys();
        assert!(live > KEYS_MAX / 2 && live <= KEYS_MAX * 9 / 4, "{limit:?}: {live} live keys");
    }
}

#[test]
fn bounded_memory_room_comes_back_by_itself_when_keys_are_done() {
    for limit in limits() {
        let clock = ManualClock::at(NOON);
        let limiter = Limiter::builder(limit).clock(clock.clone()).keys_max(KEYS_MAX).build().unwrap();
        for stranger in 0..20_000_u32 {
            limiter.check(&stranger.to_be_bytes());
        }
        clock.advance(Duration::from_secs(32 * 86_400));
        assert_eq!(limiter.live_keys(), 0);
        for newcomer in 0..KEYS_MAX {
            let first = limiter.check(Ask::of(&newcomer.to_be_bytes()));
            assert_eq!((first.allowed, first.remaining), (true, BURST - 1), "{limit:?}: {newcomer}");
        }
    }
}

/// A key that was done lost its cell to another; then the clock steps back to a time at which it still owed.
#[test]
fn clock_back_a_key_that_lost_its_cell_does_not_come_back_fresh() {
    for limit in limits() {
        let clock = ManualClock::at(NOON);
        let limiter = Limiter::builder(limit).clock(clock.clone()).keys_max(1).build().unwrap();
        while limiter.check("spent").allowed {}
        clock.advance(Duration::from_secs(32 * 86_400));
        for stranger in 0..1_000_u32 {
            limiter.check(&stranger.to_be_bytes());
        }
        clock.set(NOON);
        assert!(!limiter.check("spent").allowed, "{limit:?}");
    }
}

/// The same where empty cells are left: a spent key that comes back finds one of those, and only what was kept
/// when it lost its cell tells that it owes.
#[test]
fn clock_back_a_key_that_lost_its_cell_owes_in_an_empty_one_too() {
    for limit in limits() {
        let clock = ManualClock::at(NOON);
        let limiter = Limiter::builder(limit).clock(clock.clone()).keys_max(KEYS_MAX).build().unwrap();
        let spent: Vec<String> = (0..KEYS_MAX).map(|key| format!("spent-{key}")).collect();
        for key in &spent {
            assert!(limiter.check(Ask::of(key).cost(BURST)).allowed, "{limit:?}: {key}");
        }
        clock.advance(Duration::from_secs(32 * 86_400));
        for stranger in 0..KEYS_MAX {
            limiter.check(&stranger.to_be_bytes());
        }
        clock.set(NOON);
        let fresh = spent.iter().filter(|key| limiter.check(*key).allowed).count();
        assert_eq!(fresh, 0, "{limit:?}");
    }
}

#[test]
fn bounded_memory_several_limits_keep_their_cap_whatever_else_is_chosen() {
    let hour = Duration::from_secs(3600);
    let limits = Limits::all([Rate::per(BURST, hour)]).unwrap().keys_max(2).clock(ManualClock::at(NOON));
    let passed =
        (0..1_000_u32).filter(|key| limits.check([Ask::of(&key.to_be_bytes())]).decision.allowed).count();
    assert!(passed < 100, "{passed} newcomers passed a table for two");
}
