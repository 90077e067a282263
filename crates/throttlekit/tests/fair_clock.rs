//! One wrong reading of the clock, or many: no window is used twice, and no caller waits for a day that was
//! read by mistake.

use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::{Budget, Call, FairLimiter, Retry};

const START: u64 = 1_800_000_000_000;
const MINUTE_MS: u64 = 60_000;
const DAY: Duration = Duration::from_secs(86_400);
const LIMIT: u64 = 100;
const BUDGET: Budget = Budget::per_minute(LIMIT);
/// Minutes in which the clock is right again.
const LATER: [u64; 5] = [1, 2, 3, 4, 60];

fn limiters(clock: &ManualClock) -> [FairLimiter<ManualClock>; 2] {
    let builder = || FairLimiter::builder(BUDGET);
    [builder(), builder().without_borrowing()].map(|builder| builder.clock(clock.clone()).build().unwrap())
}

fn admitted(fair: &FairLimiter<ManualClock>, tenant: &str) -> usize {
    (0..2 * LIMIT).filter(|_| fair.check(tenant).allowed).count()
}

fn set_minute(clock: &ManualClock, minute: u64) {
    clock.set(Timestamp::from_millis(START + minute * MINUTE_MS));
}

#[test]
fn one_reading_ahead_by_a_day_freezes_no_fair_limiter() {
    let clock = ManualClock::at(Timestamp::from_millis(START));
    for fair in limiters(&clock) {
        set_minute(&clock, 0);
        assert_eq!(admitted(&fair, "a"), 100);
        clock.advance(DAY);
        assert!(fair.check("x").allowed);
        for minute in LATER {
            set_minute(&clock, minute);
            assert_eq!(admitted(&fair, "a"), 100, "minute {minute}");
            let denied = fair.check(Call::by("a").cost(60));
            assert_eq!(denied.retry_after, Retry::After(Duration::from_secs(60)));
        }
    }
}

#[test]
fn one_reading_ahead_by_a_day_freezes_no_tree() {
    let clock = ManualClock::at(Timestamp::from_millis(START));
    let tree = FairLimiter::builder(BUDGET).tree(|_| None).clock(clock.clone()).build().unwrap();
    assert_eq!(admitted(&tree, "a"), 100);
    clock.advance(DAY);
    assert!(tree.check("x").allowed);
    for minute in LATER {
        set_minute(&clock, minute);
        assert_eq!(admitted(&tree, "a"), 100, "minute {minute}");
    }
}

#[test]
fn an_oscillating_clock_uses_no_window_twice() {
    let clock = ManualClock::at(Timestamp::from_millis(START));
    for fair in limiters(&clock) {
        set_minute(&clock, 0);
        assert!((0..30).all(|_| fair.check("a").allowed));
        let mut admitted_in = [30, 0];
        for _ in 0..50 {
            set_minute(&clock, 1_440);
            admitted_in[1] += (0..7).filter(|_| fair.check("b").allowed).count();
            set_minute(&clock, 0);
            admitted_in[0] += (0..7).filter(|_| fair.check("c").allowed).count();
        }
        assert_eq!(admitted_in, [100, 100]);
    }
}

#[test]
fn a_small_clock_step_back_at_the_end_of_a_window_keeps_all_use() {
    let clock = ManualClock::at(Timestamp::from_millis(START));
    let [fair, _] = limiters(&clock);
    assert!(fair.check(Call::by("a").cost(40)).allowed && fair.check(Call::by("b").cost(1)).allowed);
    clock.set(Timestamp::from_millis(START - 1));
    assert!(!fair.check(Call::by("a").cost(11)).allowed, "half of the window is reserved for b");
    assert_eq!(fair.stats().used, 41);
}
