//! `same-everywhere`: a limiter built while the clock was wrong gives the same responses as the rule once it
//! is right.

use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::{Limit, Limiter, Rate, Retry};
use throttlekit_core::rate::{Rule, State};

const DAY: Duration = Duration::from_secs(86_400);
const YEAR: Duration = Duration::from_secs(365 * 86_400);
const IN_2026: Timestamp = Timestamp::from_millis(1_795_000_000_000);

fn limits() -> [(Limit, Duration); 7] {
    let minute = Duration::from_secs(60);
    [
        (Limit::fixed_window(10, minute).unwrap(), minute),
        (Limit::token_budget(10, minute).unwrap(), minute),
        (Limit::fixed_window(10, DAY).unwrap(), DAY),
        (Limit::gcra(Rate::per_minute(10)).unwrap(), minute),
        (Limit::gcra(Rate::per_second(3).burst(10)).unwrap(), minute),
        (Limit::sliding_window(10, minute).unwrap(), 2 * minute),
        (Limit::sliding_log(10, minute).unwrap(), minute),
    ]
}

/// Built at the epoch, before a clock was set; and days and years ahead.
fn wrong_clocks() -> [Timestamp; 4] {
    [Timestamp::from_millis(5_000), IN_2026 + 2 * YEAR, IN_2026 + 2 * DAY, IN_2026 + 12 * YEAR]
}

/// A new key gets the responses of the full rule, over five windows and beyond their ends.
#[test]
fn same_everywhere_a_limiter_built_by_a_wrong_clock_decides_as_the_rule() {
    for (limit, window) in limits() {
        for built in wrong_clocks() {
            let clock = ManualClock::at(built);
            let limiter = Limiter::builder(limit).clock(clock.clone()).build().unwrap();
            limiter.check("old");
            let mut state = State::default();
            for turn in 0..5 {
                let now = IN_2026 + window * turn;
                clock.set(now);
                for _ in 0..12 {
                    let (want, got) = (limit.check(&mut state, 1, now), limiter.check("fresh"));
                    assert_eq!(want, got, "{limit:?} built at {built}");
                    assert!(got.allowed || got.retry_after != Retry::Now, "{limit:?} built at {built}");
                }
            }
        }
    }
}

#[test]
fn same_everywhere_a_limiter_built_by_a_wrong_clock_admits_in_every_window() {
    for (limit, window) in limits() {
        for built in wrong_clocks() {
            let clock = ManualClock::at(built);
            let limiter = Limiter::builder(limit).clock(clock.clone()).build().unwrap();
            limiter.check("old");
            let admitted: Vec<usize> = (0..5)
                .map(|turn| {
                    clock.set(IN_2026 + window * turn);
                    (0..100).filter(|_| limiter.check("fresh").allowed).count()
                })
                .collect();
            assert_eq!(admitted, [10; 5], "{limit:?} built at {built}");
        }
    }
}

/// The same for several limits together, and for keyless ones that have had no request yet.
#[test]
fn same_everywhere_keyless_and_several_limits_built_by_a_wrong_clock_decide_as_the_rule() {
    for (limit, window) in limits() {
        for built in wrong_clocks() {
            let clock = ManualClock::at(built);
            let keyless = Limiter::builder(limit).clock(clock.clone()).build_keyless().unwrap();
            let several = Limiter::builder(limit).limit("same", limit).clock(clock.clone()).build().unwrap();
            let mut state = State::default();
            for turn in 0..3 {
                let now = IN_2026 + window * turn;
                clock.set(now);
                for _ in 0..12 {
                    let want = limit.check(&mut state, 1, now);
                    assert_eq!(keyless.check(()), want, "{limit:?} built at {built}");
                    assert_eq!(several.check("fresh"), want, "{limit:?} built at {built}");
                }
            }
        }
    }
}

/// Past the end of the range of words a limiter denies, and no wait helps; one that is built then keeps full
/// states.
#[test]
fn same_everywhere_past_the_end_of_words_no_denial_promises_a_wait() {
    let (limit, beyond) =
        (Limit::fixed_window(10, Duration::from_millis(1)).unwrap(), Timestamp::from_nanos(1 << 63));
    let clock = ManualClock::at(IN_2026);
    let limiter = Limiter::builder(limit).clock(clock.clone()).build().unwrap();
    clock.set(beyond);
    let last = (0..100).map(|_| limiter.check("key")).last().unwrap();
    assert_eq!((last.allowed, last.retry_after), (false, Retry::Never));
    clock.set(IN_2026);
    assert!(limiter.check("another").allowed, "the clock was set right");
    let built_then = Limiter::builder(limit).clock(ManualClock::at(beyond)).build().unwrap();
    assert_eq!((0..100).filter(|_| built_then.check("key").allowed).count(), 10);
}
