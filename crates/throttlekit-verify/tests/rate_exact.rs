//! `rate-exact` beyond the reach of random tests: a billion admissions, and the edge of a window.

use std::time::Duration;

use throttlekit_core::rate::{Limit, Rate, Rule, State};
use throttlekit_core::{Retry, Timestamp};

const BILLION: u64 = 1_000_000_000;

/// A greedy caller takes a million units, a thousand times, and waits exactly for each retry-after. The n-th
/// unit must pass at the first nanosecond at which `burst + rate·Δ ≥ n`, with no drift after a billion. The
/// burst has one unit to spare: a caller that empties a bucket at whole nanoseconds leaves it full for a part
/// of one, each time.
#[test]
fn no_drift_over_a_billion_admissions_by_a_greedy_caller() {
    let start = 1_700_000_000 * BILLION;
    for (units, period) in [(3, BILLION), (7, 60 * BILLION), (1_000_001, BILLION), (BILLION, BILLION)] {
        let (ask, asks) = (1_000_000, 1_000);
        let rate = Rate::per(units, Duration::from_nanos(period)).burst(ask + 1);
        let limit = Limit::gcra(rate).unwrap();
        let (mut state, mut now) = (State::default(), Timestamp::from_nanos(start));
        for n in 1..=asks {
            if let Retry::After(wait) = limit.decide(&state, ask, now).retry_after {
                now = now + wait;
            }
            assert!(limit.check(&mut state, ask, now).allowed);
            let beyond_burst = u128::from((n * ask).saturating_sub(ask + 1)) * u128::from(period);
            let due = u128::from(start) + beyond_burst.div_ceil(u128::from(units));
            assert_eq!(u128::from(now.as_nanos()), due, "{rate:?}, unit {}", n * ask);
        }
    }
}

/// The same caller, one unit at a time, at the rates where a unit is no whole number of nanoseconds.
#[test]
fn no_drift_unit_by_unit() {
    for (units, period) in [(3, BILLION), (7, 60 * BILLION), (1_000_001, BILLION)] {
        let limit = Limit::gcra(Rate::per(units, Duration::from_nanos(period)).burst(2)).unwrap();
        let (mut state, mut now) = (State::default(), Timestamp::EPOCH);
        for n in 0..100_000_u128 {
            if let Retry::After(wait) = limit.decide(&state, 1, now).retry_after {
                now = now + wait;
            }
            assert!(limit.check(&mut state, 1, now).allowed);
            assert_eq!(
                u128::from(now.as_nanos()),
                (n.saturating_sub(1) * u128::from(period)).div_ceil(u128::from(units))
            );
        }
    }
}

/// "At most L per window" is not "at most L in any interval of that length": two nanoseconds may see 2L.
#[test]
fn a_fixed_window_admits_twice_its_limit_around_a_boundary_and_a_sliding_log_does_not() {
    let second = Duration::from_secs(1);
    let around = [Timestamp::from_nanos(10 * BILLION - 1), Timestamp::from_nanos(10 * BILLION)];
    let admitted = |limit: Limit| {
        let mut state = State::default();
        around
            .into_iter()
            .map(|now| (0..10).filter(|_| limit.check(&mut state, 1, now).allowed).count())
            .sum::<usize>()
    };
    assert_eq!(admitted(Limit::fixed_window(5, second).unwrap()), 10);
    assert_eq!(admitted(Limit::sliding_log(5, second).unwrap()), 5);
}
