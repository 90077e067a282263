use core::time::Duration;

use super::*;

/// A backend that is never full, and calls whose latencies vary: one in ten takes 24 times as long.
fn varied(call: u32) -> Duration {
    Duration::from_millis(if call % 10 == 9 { 730 } else { 30 })
}

fn play(standing: &mut Standing, limit: &mut f64, calls: u32, latency: impl Fn(u32, f64) -> Duration) {
    for call in 0..calls {
        let allowed = *limit as u32;
        let sample = Sample { latency: latency(call, *limit), in_flight: allowed, allowed };
        if let Some(aim) = standing.success(sample, *limit) {
            let before = *limit;
            *limit = libm::round(aim).clamp(4.0, 512.0);
            standing.moved(*limit / before);
        }
    }
}

#[test]
fn variance_alone_never_lowers_the_limit_permanently() {
    let (mut standing, mut limit) = (Standing::new(true, None, 4), 4.0);
    play(&mut standing, &mut limit, 20_000, |call, _| varied(call));
    assert!(limit > 250.0, "{limit}");
}

#[test]
fn a_queue_that_even_the_fastest_wait_in_lowers_the_limit() {
    let (mut standing, mut limit) = (Standing::new(false, None, 200), 200.0);
    // The capacity of the backend is 50, and each call beyond waits for a fiftieth of the mean of 100 ms.
    let queued = |call, limit: f64| varied(call) + Duration::from_millis(2) * (limit - 50.0).max(0.0) as u32;
    play(&mut standing, &mut limit, 20_000, queued);
    assert!((50.0..=85.0).contains(&limit), "{limit}");
}

#[test]
fn slower_work_without_load_does_not_lower_the_limit_permanently() {
    let (mut standing, mut limit) = (Standing::new(true, None, 4), 4.0);
    let steps = |call| Duration::from_millis(if call % 4 == 3 { 200 } else { 60 });
    play(&mut standing, &mut limit, 20_000, |call, _| steps(call));
    let before = limit;
    play(&mut standing, &mut limit, 20_000, |call, _| 5 * steps(call));
    assert!(limit >= 0.5 * before, "from {before} to {limit}");
}

#[test]
fn a_limit_that_is_never_reached_stays_where_it_is() {
    let (mut standing, limit) = (Standing::new(false, None, 10), 100.0);
    for call in 0..5_000 {
        let sample = Sample { latency: varied(call), in_flight: 60 + call % 25, allowed: 100 };
        assert_eq!(standing.success(sample, limit), None);
    }
}

#[test]
fn drops_lower_the_limit_above_a_threshold() {
    let (mut standing, limit) = (Standing::new(false, None, 0), 20.0);
    let sample = Sample { latency: Duration::from_millis(30), in_flight: 12, allowed: 20 };
    for call in 0..400 {
        let moved = if call % 40 == 0 { standing.dropped(limit) } else { standing.success(sample, limit) };
        assert_eq!(moved, None, "one drop in forty");
    }
    let moved = (0..40).find_map(|_| standing.dropped(limit));
    assert_eq!(moved, Some(10.0));
}
