//! Limits in a sketch, merged sketches and the throttle, as users hold them.

use std::time::Duration;

use throttlekit::overload::{Criticality, MergeError, Shape, SketchError};
use throttlekit::{
    AdaptiveThrottle, Call, FloodLimiter, ManualClock, MergeableSketch, Retry, SketchLimiter, Timestamp,
};

const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn sketch_an_answer_has_all_its_fields() {
    let clock = ManualClock::at(NOON + Duration::from_secs(15));
    let shield = SketchLimiter::builder(3, MINUTE).clock(clock.clone()).build().unwrap();
    let first = shield.check("alice");
    assert_eq!((first.allowed, first.limit, first.remaining), (true, 3, 2));
    assert_eq!((first.reset_at, first.retry_after), (NOON + MINUTE, Retry::Now));

    let denied = shield.check(Call::by("alice").cost(3));
    assert_eq!((denied.allowed, denied.remaining), (false, 2));
    assert_eq!(denied.retry_after, Retry::After(Duration::from_secs(45)));
    assert_eq!(shield.check(Call::by("alice").cost(4)).retry_after, Retry::Never);

    let left = shield.peek("alice");
    assert_eq!((left.allowed, left.remaining), (true, 2));
    clock.advance(Duration::from_secs(45));
    assert_eq!(shield.peek("alice").remaining, 3);
    assert!(shield.check(Call::by("alice").cost(3)).allowed);
}

#[test]
fn clock_back_a_window_that_has_begun_is_not_left() {
    let clock = ManualClock::at(NOON);
    let sketch = SketchLimiter::builder(1, MINUTE).clock(clock.clone()).build().unwrap();
    let flood = FloodLimiter::builder(1, MINUTE).clock(clock.clone()).build().unwrap();
    assert!(sketch.check("alice").allowed && flood.check("alice").allowed);
    for now in [Timestamp::EPOCH, NOON + MINUTE / 2] {
        clock.set(now);
        assert!(!sketch.check("alice").allowed && !flood.check("alice").allowed, "at {now}");
    }
}

#[test]
fn sketch_past_the_last_window_it_is_closed() {
    let shield = SketchLimiter::builder(1, MINUTE).clock(ManualClock::at(Timestamp::MAX)).build().unwrap();
    assert!(shield.check("alice").allowed && !shield.check("alice").allowed);
}

#[test]
fn sketch_what_cannot_be_built_says_why() {
    let refused = SketchLimiter::builder(100, MINUTE).error(2.0, 0.001).build().unwrap_err();
    assert!(refused.to_string().contains("between 0 and 1"), "{refused}");
    let refused = FloodLimiter::builder(100, MINUTE).hot_keys(0).build().unwrap_err();
    assert_eq!(refused, SketchError::Hot(0));
    assert!(SketchLimiter::new(1 << 32, MINUTE).is_err());
}

#[test]
fn sketch_sizes_are_what_the_docs_say() {
    assert_eq!(SketchLimiter::new(100, MINUTE).unwrap().shape().bytes(), 7_616);
    assert_eq!(FloodLimiter::new(100, MINUTE).unwrap().bytes(), 24_000);
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
fn throttle_a_call_that_is_dropped_counts_as_refused() {
    let throttle = AdaptiveThrottle::with(2_000, Duration::from_secs(10), ManualClock::at(NOON)).unwrap();
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
