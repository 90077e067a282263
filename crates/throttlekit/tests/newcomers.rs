//! Keys without a cell of their own: their responses, and the cost of their requests to them and others.

use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::hash::SecretHash;
use throttlekit::rate::Timestamp;
use throttlekit::{Call, Decision, Limit, Limiter, Rate};

const HOUR: Duration = Duration::from_secs(3600);
const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// Both kinds of word, and a wide state; seven and a hundred units, as seven fills its bits and a hundred
/// does not.
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

/// Returns a limit that never denies, beside which another decides as one of several.
fn wide() -> Rate {
    Rate::per_second(1_000_000_000)
}

fn told(decision: Decision) -> (bool, u64) {
    (decision.allowed, decision.remaining)
}

/// A request over several limits holds its cells before it is decided; that must not move any key's debt.
#[test]
fn bounded_memory_requests_over_several_limits_give_no_key_a_fresh_budget() {
    for limit in limits() {
        let builder = Limiter::builder(limit).limit_by(1, "wide", wide());
        let limits = builder.clock(ManualClock::at(NOON)).memory_budget(2 << 10).build().unwrap();
        let all = limit.units();
        assert!(limits.check(("abuser", all)).allowed);
        for stranger in 0..5_000_u32 {
            limits.check((&stranger.to_be_bytes(), all));
            assert!(!limits.check("abuser").allowed, "{limit:?}: free again after {stranger} strangers");
        }
    }
}

#[test]
fn deny_is_free_a_denied_new_key_takes_no_cell() {
    for limit in limits() {
        let closed = Limit::fixed_window(1, HOUR).unwrap();
        let builder = Limiter::builder(limit).limit_by(1, "closed", closed);
        let limits = builder.clock(ManualClock::at(NOON)).memory_budget(8 << 10).build().unwrap();
        assert!(limits.check(Call::by("alice").and(&["all"])).allowed);
        for stranger in 0..1_000_u32 {
            let key = stranger.to_be_bytes();
            let (denied, binding) = limits.check_binding(Call::by(&key).and(&["all"]));
            assert_eq!((denied.allowed, binding), (false, 1));
        }
        let left = |key: &str| limits.peek_each(Call::by(key).and(&["all"]))[0].remaining;
        assert_eq!([left("alice"), left("bob")], [limit.units() - 1, limit.units()], "{limit:?}");
    }
}

/// A later request of zero must not be stored as an instant at which the key was used.
#[test]
fn deny_is_free_a_request_of_zero_leaves_no_trace_for_a_clock_that_steps_back() {
    for limit in limits() {
        let clock = ManualClock::at(NOON);
        let limiter = Limiter::builder(limit).clock(clock.clone()).build().unwrap();
        let builder = Limiter::builder(limit).limit("wide", wide());
        let limits = builder.clock(clock.clone()).build().unwrap();
        limiter.check("alice");
        limits.check("alice");
        clock.advance(3 * HOUR);
        assert!(limiter.check_many([("alice", 0)])[0].allowed);
        assert!(limits.check(("alice", 0)).allowed);
        clock.set(NOON + HOUR / 200);
        let expected = (true, limit.units() - 2);
        assert_eq!(told(limiter.check("alice")), expected, "{limit:?}, in a batch");
        assert_eq!(told(limits.check("alice")), expected, "{limit:?}, over several");
    }
}

#[test]
fn forecast_exact_a_new_key_at_the_cap_gets_its_actual_forecast() {
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
