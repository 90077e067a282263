//! Limits in a sketch, merged sketches and the throttle, through the public API.

use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::limiter::{LimiterBuilder, Sketch};
use throttlekit::overload::{
    AdaptiveThrottle, AdaptiveThrottleBuilder, Criticality, MergeError, MergeableSketch, Shape,
};
use throttlekit::rate::Timestamp;
use throttlekit::{Budget, BuildError, Limit, Limiter, Retry};

const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const MINUTE: Duration = Duration::from_secs(60);

fn sketch(units: u64) -> LimiterBuilder {
    Limiter::builder(Budget::per_minute(units)).sketch(Sketch::default().hot_keys(0))
}

fn hot(units: u64) -> LimiterBuilder {
    Limiter::builder(Budget::per_minute(units)).sketch(Sketch::default())
}

#[test]
fn sketch_responses_have_all_fields() {
    for shield in [sketch(3), hot(3)] {
        let clock = ManualClock::at(NOON + Duration::from_secs(15));
        let shield = shield.clock(clock.clone()).build().unwrap();
        let first = shield.check("alice");
        assert_eq!((first.allowed, first.limit, first.remaining), (true, 3, 2));
        assert_eq!((first.reset_at, first.retry_after), (NOON + MINUTE, Retry::Now));

        let denied = shield.check(("alice", 3));
        assert_eq!((denied.allowed, denied.remaining), (false, 2));
        assert_eq!(denied.retry_after, Retry::After(Duration::from_secs(45)));
        assert_eq!(shield.check(("alice", 4)).retry_after, Retry::Never);

        let left = shield.peek("alice");
        assert_eq!((left.allowed, left.remaining), (true, 2));
        clock.advance(Duration::from_secs(45));
        assert_eq!(shield.peek("alice").remaining, 3);
        assert!(shield.check(("alice", 3)).allowed);
    }
}

/// One key alone is counted exactly, so all methods return what the same limit returns without a sketch.
#[test]
fn sketch_decides_a_single_key_as_without_a_sketch() {
    for shield in [sketch(10), hot(10)] {
        let clock = ManualClock::at(NOON + Duration::from_secs(1));
        let plain = Limiter::builder(Budget::per_minute(10)).clock(clock.clone()).build().unwrap();
        let shield = shield.clock(clock.clone()).build().unwrap();
        for (wait, cost) in [(0, 3), (10, 0), (1, 8), (20, 4), (5, 2), (30, 7), (1, 11), (0, 3), (0, 1)] {
            clock.advance(Duration::from_secs(wait));
            assert_eq!(shield.peek("alice"), plain.peek("alice"));
            assert_eq!(shield.forecast(("alice", cost)), plain.forecast(("alice", cost)));
            assert_eq!(shield.check(("alice", cost)), plain.check(("alice", cost)));
        }
        assert_eq!(shield.check_many([("alice", 1); 3]), plain.check_many([("alice", 1); 3]));
        assert!(shield.charge("bob").1.is_none(), "a count in a sketch is not lowered");
    }
}

#[test]
fn clock_back_a_window_that_has_begun_is_not_left() {
    let clock = ManualClock::at(NOON);
    let sketch = sketch(1).clock(clock.clone()).build().unwrap();
    let hot = hot(1).clock(clock.clone()).build().unwrap();
    assert!(sketch.check("alice").allowed && hot.check("alice").allowed);
    for now in [Timestamp::EPOCH, NOON + MINUTE / 2] {
        clock.set(now);
        assert!(!sketch.check("alice").allowed && !hot.check("alice").allowed, "at {now}");
    }
}

#[test]
fn sketch_past_the_last_window_it_is_closed() {
    let shield = sketch(1).clock(ManualClock::at(Timestamp::MAX)).build().unwrap();
    assert!(shield.check("alice").allowed && !shield.check("alice").allowed);
}

#[test]
fn sketch_build_errors_state_the_reason() {
    let refused = |limit: Limit, sketch: Sketch| {
        let error = Limiter::builder(limit).sketch(sketch).build().unwrap_err();
        assert!(matches!(error, BuildError::InvalidSketch(_)), "{error:?}");
        error.to_string()
    };
    let minute = |units| Limit::fixed_window(units, MINUTE).unwrap();
    assert!(refused(minute(100), Sketch::new(2.0, 0.001)).contains("between 0 and 1"));
    assert!(refused(minute(100), Sketch::default().hot_keys(1 << 17)).contains("65536"));
    assert!(refused(minute(1 << 31), Sketch::default()).contains("2147483647"));
    refused(Budget::per_minute(100).tokens().unwrap(), Sketch::default());
    refused(Budget::per_month(100).try_into().unwrap(), Sketch::default());
    assert!(Limiter::builder(Budget::per_day(100)).sketch(Sketch::default()).build().is_ok());
}

#[test]
fn sketch_sizes_match_the_documentation() {
    assert_eq!(sketch(100).build().unwrap().memory().used_bytes, 7_616);
    assert_eq!(hot(100).build().unwrap().memory().used_bytes, 24_000);
}

#[test]
fn sketch_merging_needs_one_seed() {
    let shape = Shape::for_error(0.01, 0.001).unwrap();
    let (node, stranger) = (MergeableSketch::with_seed(shape, [1; 16]), MergeableSketch::new(shape));
    assert_eq!(node.merge(&stranger.snapshot()), Err(MergeError::Seed));

    node.observe("alice", 5);
    let taken = node.take();
    assert_eq!((node.total(), taken.total(), node.estimate_in(&taken, "alice")), (0, 5, 5));
}

#[test]
fn throttle_settings_out_of_range_are_refused_by_name() {
    let wrong = |builder: AdaptiveThrottleBuilder| match builder.build() {
        Err(BuildError::OutOfRange { setting, .. }) => setting,
        other => panic!("{other:?}"),
    };
    let builder = AdaptiveThrottle::builder;
    for multiplier in [0.999, 1_001.0, -1.0, f64::NAN] {
        assert_eq!(wrong(builder().multiplier(multiplier)), "multiplier");
    }
    assert_eq!(wrong(builder().window(Duration::ZERO)), "window");
}

#[test]
fn throttle_a_call_that_is_dropped_counts_as_refused() {
    let throttle = AdaptiveThrottle::builder().clock(ManualClock::at(NOON)).build().unwrap();
    for _ in 0..20 {
        throttle.admit(Criticality::CRITICAL).expect("critical calls are sent").accepted();
    }
    assert_eq!(throttle.shed_per_million(Criticality::ORDINARY), 0);
    for _ in 0..60 {
        _ = throttle.admit(Criticality::CRITICAL);
    }
    // (80 − 2·20) / 81
    assert_eq!(throttle.shed_per_million(Criticality::ORDINARY), 493_827);
}
