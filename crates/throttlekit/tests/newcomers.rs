//! Keys without a cell of their own: what they are told, and what asking costs them and others.

use std::time::Duration;

use throttlekit::{Call, Decision, Limit, Limiter, Limits, ManualClock, Rate, SecretHash, Timestamp};

const HOUR: Duration = Duration::from_secs(3600);
const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// Both kinds of word, and a wide state; seven and a hundred units, as seven fills its bits and a hundred does not.
fn limits() -> [Limit; 6] {
    let each = |units| {
        [
            Limit::gcra(Rate::per(units, HOUR)).unwrap(),
            Limit::fixed_window(units, HOUR).unwrap(),
            Limit::sliding_log(units, HOUR).unwrap(),
        ]
    };
    let [a, b, c] = each(7);
    let [d, e, f] = each(100);
    [a, b, c, d, e, f]
}

fn crowded(limit: Limit, clock: &ManualClock) -> Limiter<ManualClock, SecretHash> {
    Limiter::builder(limit).clock(clock.clone()).memory_budget(1 << 10).build().unwrap()
}

fn told(decision: Decision) -> (bool, u64) {
    (decision.allowed, decision.remaining)
}

/// An ask over several limits holds its cells before it knows the answer; that must not push anyone's debt on.
#[test]
fn bounded_memory_asks_over_several_limits_hand_nobody_a_fresh_budget() {
    for limit in limits() {
        let limits = Limits::all([limit]).unwrap().clock(ManualClock::at(NOON)).memory_budget(1 << 10);
        let all = limit.units();
        assert!(limits.check([Call::by("abuser").cost(all)]).decision.allowed);
        for stranger in 0..5_000_u32 {
            limits.check([Call::by(&stranger.to_be_bytes()).cost(all)]);
            let again = limits.check([Call::by("abuser")]);
            assert!(!again.decision.allowed, "{limit:?}: free again after {stranger} strangers");
        }
    }
}

#[test]
fn deny_is_free_a_denied_newcomer_takes_nobodys_cell() {
    for limit in limits() {
        let closed = Limit::fixed_window(1, HOUR).unwrap();
        let limits =
            Limits::all([limit, closed]).unwrap().clock(ManualClock::at(NOON)).memory_budget(8 << 10);
        assert!(limits.check([Call::by("alice"), Call::by("all")]).decision.allowed);
        for stranger in 0..1_000_u32 {
            let denied = limits.check([Call::by(&stranger.to_be_bytes()), Call::by("all")]);
            assert!(!denied.decision.allowed);
        }
        let [alice, _] = limits.peek_each([b"alice", b"all"]);
        let [bob, _] = limits.peek_each([b"bob", b"all"]);
        assert_eq!([alice.remaining, bob.remaining], [limit.units() - 1, limit.units()], "{limit:?}");
    }
}

/// Asked later, an ask of zero must not stay behind as an instant the key was seen at.
#[test]
fn deny_is_free_an_ask_of_zero_leaves_nothing_for_a_clock_that_steps_back() {
    for limit in limits() {
        let clock = ManualClock::at(NOON);
        let limiter = Limiter::builder(limit).clock(clock.clone()).build().unwrap();
        let limits = Limits::all([limit]).unwrap().clock(clock.clone());
        limiter.check("alice");
        limits.check([Call::by("alice")]);
        clock.advance(3 * HOUR);
        assert!(limiter.check_many(&["alice"], 0)[0].allowed);
        assert!(limits.check([Call::by("alice").cost(0)]).decision.allowed);
        clock.set(NOON + HOUR / 200);
        let expected = (true, limit.units() - 2);
        assert_eq!(told(limiter.check("alice")), expected, "{limit:?}, in a batch");
        assert_eq!(told(limits.check([Call::by("alice")]).decision), expected, "{limit:?}, over several");
    }
}

#[test]
fn forecast_exact_a_newcomer_at_the_cap_is_told_what_it_would_get() {
    for limit in limits() {
        let limiter = crowded(limit, &ManualClock::at(NOON));
        for stranger in 0..200_u32 {
            let key = stranger.to_be_bytes();
            let (peeked, forecast) = (limiter.peek(&key), limiter.forecast(&key));
            let asked = limiter.check(&key);
            assert_eq!(peeked.allowed, asked.allowed, "{limit:?}: stranger {stranger}");
            assert_eq!(forecast.spendable_now, asked.remaining + u64::from(asked.allowed), "{limit:?}");
        }
    }
}
