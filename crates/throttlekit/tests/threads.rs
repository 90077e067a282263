//! The same invariants with many concurrent threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::{Call, Limit, Limiter, Rate};

const THREADS: usize = 4;
const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);

/// One limit of each kind of state, `burst` units each, with no refill while the clock stands still.
fn limits(burst: u64) -> [Limit; 4] {
    [
        Limit::gcra(Rate::per(burst, HOUR)).unwrap(),
        Limit::gcra(Rate::per(999_983, HOUR).burst(burst)).unwrap(),
        Limit::fixed_window(burst, HOUR).unwrap(),
        Limit::sliding_log(burst, HOUR).unwrap(),
    ]
}

fn on_threads(work: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for number in 0..THREADS {
            let work = &work;
            scope.spawn(move || work(number));
        }
    });
}

#[test]
fn rate_exact_many_threads_on_one_key_admit_exactly_the_burst() {
    for limit in limits(1_000) {
        let limiter = Limiter::builder(limit).clock(ManualClock::at(NOON)).build().unwrap();
        let whole = Limiter::builder(limit).clock(ManualClock::at(NOON)).build_keyless().unwrap();
        let (keyed, keyless) = (AtomicU64::new(0), AtomicU64::new(0));
        on_threads(|_| {
            for _ in 0..1_000 {
                keyed.fetch_add(u64::from(limiter.check("alice").allowed), Relaxed);
                keyless.fetch_add(u64::from(whole.check(()).allowed), Relaxed);
            }
        });
        assert_eq!((keyed.into_inner(), keyless.into_inner()), (1_000, 1_000), "{limit:?}");
    }
}

#[test]
fn rate_exact_threads_that_add_the_same_keys_never_add_one_twice() {
    const KEYS: usize = 3_000;
    for limit in limits(3) {
        let limiter = Limiter::builder(limit).clock(ManualClock::at(NOON)).build().unwrap();
        let admitted: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        on_threads(|_| {
            for (key, count) in admitted.iter().enumerate() {
                for _ in 0..2 {
                    count.fetch_add(u64::from(limiter.check(&key.to_be_bytes()).allowed), Relaxed);
                }
            }
        });
        let wrong = admitted.iter().filter(|count| count.load(Relaxed) != 3).count();
        assert_eq!(wrong, 0, "{limit:?}");
    }
}

/// Every user's key shows exactly the admitted requests: those the org denied cost the user nothing.
#[test]
fn deny_is_free_with_threads_two_limits_are_charged_all_or_none() {
    const USERS: usize = 8;
    for (user, org) in limits(500).into_iter().zip(limits(2_000).into_iter().rev()) {
        let builder = Limiter::builder(user).limit_by(1, "org", org);
        let limits = builder.clock(ManualClock::at(NOON)).build().unwrap();
        let admitted: Vec<AtomicU64> = (0..USERS).map(|_| AtomicU64::new(0)).collect();
        on_threads(|thread| {
            for ask in 0..2_000 {
                let who = (ask + thread) % USERS;
                let decision = limits.check(Call::by(&who.to_be_bytes()).and(&["acme"]));
                admitted[who].fetch_add(u64::from(decision.allowed), Relaxed);
            }
        });
        assert_eq!(admitted.iter().map(|count| count.load(Relaxed)).sum::<u64>(), 2_000, "{user:?} {org:?}");
        for (who, count) in admitted.iter().enumerate() {
            let left = limits.peek_each(Call::by(&who.to_be_bytes()).and(&["acme"]));
            assert_eq!(left[0].remaining, 500 - count.load(Relaxed), "user {who}: {user:?} {org:?}");
        }
    }
}

#[test]
fn a_batch_gives_the_same_responses_as_single_requests() {
    for limit in limits(3) {
        let by_batch = Limiter::builder(limit).clock(ManualClock::at(NOON)).build().unwrap();
        let one_by_one = Limiter::builder(limit).clock(ManualClock::at(NOON)).build().unwrap();
        let keys: Vec<String> = (0..100).map(|i| format!("key-{}", i * i % 37)).collect();
        for cost in [1, 0, 2, 4, 1] {
            let together = by_batch.check_many(keys.iter().map(|key| (key, cost)));
            let apart: Vec<_> = keys.iter().map(|key| one_by_one.check((key, cost))).collect();
            assert_eq!(together, apart, "{limit:?} cost {cost}");
        }
    }
}

#[test]
fn a_reset_key_starts_at_zero_and_others_do_not() {
    for limit in limits(2) {
        let limiter = Limiter::builder(limit).clock(ManualClock::at(NOON)).build().unwrap();
        for key in ["alice", "bob"] {
            while limiter.check(key).allowed {}
        }
        limiter.reset("alice");
        assert_eq!(limiter.peek("alice").remaining, 2, "{limit:?}");
        assert!(limiter.check("alice").allowed && !limiter.check("bob").allowed, "{limit:?}");
        assert_eq!(limiter.forecast("alice").spendable_now, 1, "{limit:?}");
    }
}

/// As after each successful login: a reset costs no capacity, so the thousandth works as the first.
#[test]
fn a_key_may_be_reset_again_and_again() {
    for limit in limits(2) {
        let limiter = Limiter::builder(limit).clock(ManualClock::at(NOON)).build().unwrap();
        for round in 0..1_000 {
            assert_eq!(limiter.check("alice").remaining, 1, "{limit:?} after {round} resets");
            limiter.reset("alice");
        }
        assert_eq!(limiter.peek("bob").remaining, 2, "{limit:?}");
    }
}
