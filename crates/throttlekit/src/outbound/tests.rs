//! Tests of the limits of an upstream in process and over a store. Waits are compared with lower bounds only.

use std::time::{Duration, Instant};

use http::Response;
use http::response::Parts;

#[cfg(feature = "store")]
use super::pauses::LOOK_EVERY;
use super::{Outbound, OutboundBuilder, OutboundStats, Usage};
use crate::wait::NotReady;
use crate::{Axis, BuildError, Call, Limiter, Rate};

/// Nothing waits: what is not ready now fails.
fn at_once(builder: OutboundBuilder) -> Outbound {
    builder.max_wait(Duration::ZERO).build().expect("valid limits")
}

fn response(status: u16, headers: &[(&str, &str)]) -> Parts {
    let response = Response::builder().status(status);
    let response = headers.iter().fold(response, |response, (name, value)| response.header(*name, *value));
    response.body(()).expect("a response").into_parts().0
}

fn assert_timeout<T: std::fmt::Debug>(result: Result<T, NotReady>, axis: Axis) {
    match result {
        Err(NotReady::Timeout(denied)) => assert_eq!(denied.axis, Some(axis)),
        other => panic!("not a timeout: {other:?}"),
    }
}

#[tokio::test]
async fn a_refusal_pauses_the_calls_of_its_key_only() {
    let outbound = at_once(Outbound::builder("test").requests_per_minute(60_000));
    let mut refused = outbound.until_ready("a").await.expect("ready");
    let other = outbound.until_ready("a").await.expect("ready");
    assert!(refused.observe(&response(429, &[("retry-after", "30")])).is_refusal());
    refused.dropped();
    other.success();
    assert_timeout(outbound.until_ready("a").await, Axis::Rate);
    outbound.until_ready("b").await.expect("another key").success();
    let OutboundStats { admitted, not_ready, refused, avoided, .. } = outbound.stats();
    assert_eq!((admitted, not_ready, refused, avoided), (3, 1, 1, 1));
}

#[tokio::test]
async fn a_call_waits_for_all_of_a_pause() {
    let outbound = Outbound::builder("test").requests_per_minute(60_000).build().expect("valid limits");
    let mut refused = outbound.until_ready(()).await.expect("ready");
    let limit = ("x-ratelimit-limit-requests", "60000");
    let begun = now();
    refused.observe(&response(429, &[("retry-after-ms", "80"), limit]));
    refused.dropped();
    outbound.until_ready(()).await.expect("after the pause").success();
    assert!(begun.elapsed() >= Duration::from_millis(80));
    let stats = outbound.stats();
    assert!(stats.wait_percentile(100) >= Some(Duration::from_millis(64)), "{stats:?}");
}

#[tokio::test]
async fn requests_of_a_minute_are_spread() {
    let outbound = at_once(Outbound::builder("test").requests_per_minute(60));
    outbound.until_ready(()).await.expect("the first").success();
    assert_timeout(outbound.until_ready(()).await, Axis::Rate);
}

#[tokio::test]
async fn a_daily_quota_is_never_exceeded() {
    let outbound = at_once(Outbound::builder("test").requests_per_minute(60_000).requests_per_day(2));
    outbound.until_ready(()).await.expect("the first").success();
    outbound.until_ready(()).await.expect("the second").success();
    assert_timeout(outbound.until_ready(()).await, Axis::Rate);
}

#[tokio::test]
async fn tokens_of_a_call_that_was_not_sent_return_and_those_of_a_refused_one_stay() {
    let outbound = at_once(Outbound::builder("test").tokens_per_minute(20_000));
    let call = || Call::by("a").cost(1_000);
    drop(outbound.until_ready(call()).await.expect("ready"));
    let mut refused = outbound.until_ready(call()).await.expect("its tokens returned");
    let headers = [("x-ratelimit-limit-tokens", "20000"), ("retry-after-ms", "1")];
    refused.observe(&response(429, &headers));
    drop(refused);
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_timeout(outbound.until_ready(call()).await, Axis::Cost);
}

#[tokio::test]
async fn settled_tokens_return_the_rest_of_the_estimate() {
    let outbound = at_once(Outbound::builder("test").tokens_per_minute(2_000));
    let mut permit = outbound.until_ready(Call::by("a").cost(100)).await.expect("ready");
    assert_timeout(outbound.until_ready(Call::by("a").cost(90)).await, Axis::Cost);
    permit.settle(10);
    permit.success();
    outbound.until_ready(Call::by("a").cost(90)).await.expect("the rest returned").success();
}

#[tokio::test]
async fn a_call_above_the_burst_starts_and_owes_the_rest() {
    let outbound = at_once(Outbound::builder("test").tokens_per_minute(2_000));
    outbound.until_ready(Call::by("a").cost(500)).await.expect("ready").success();
    let Err(NotReady::Timeout(denied)) = outbound.until_ready(Call::by("a").cost(1)).await else {
        panic!("400 tokens are owed");
    };
    assert!(denied.decision.retry_after.wait_ms() > Some(11_000), "{denied}");
}

#[tokio::test]
async fn slots_are_released_with_the_permit() {
    let outbound = at_once(Outbound::builder("test").concurrency(1));
    let permit = outbound.until_ready(()).await.expect("ready");
    assert_timeout(outbound.until_ready(()).await, Axis::Concurrency);
    permit.success();
    outbound.until_ready(()).await.expect("a free slot").success();
}

#[tokio::test]
async fn a_reported_limit_below_the_ceiling_is_kept() {
    let outbound = at_once(Outbound::builder("test").requests_per_minute(6_000));
    let mut permit = outbound.until_ready(()).await.expect("ready");
    permit.observe(&response(
        200,
        &[("x-ratelimit-limit-requests", "60"), ("x-ratelimit-remaining-requests", "50")],
    ));
    permit.success();
    let stats = outbound.stats();
    assert_eq!(stats.keys[0].requests_per_minute, Some(60));
    assert_eq!(stats.keys[0].requests.and_then(|requests| requests.remaining), Some(50));
    // One more, which owes a second.
    outbound.until_ready(()).await.expect("the first at the lower limit").success();
    assert_timeout(outbound.until_ready(()).await, Axis::Rate);
}

/// Long enough for a store in memory, and less than any wait in these tests.
#[cfg(feature = "store")]
const STORE_WAIT: Duration = Duration::from_secs(5);

/// Each process alone would admit a call: each has a pace of its own.
#[cfg(feature = "store")]
#[tokio::test]
async fn processes_keep_a_lower_limit_together() {
    let store = std::sync::Arc::new(crate::store::MemoryStore::new());
    let process = || {
        let builder = Outbound::shared(store.clone(), "test").requests_per_minute(6_000);
        builder.max_wait(STORE_WAIT).build().expect("valid limits")
    };
    let processes = [process(), process()];
    for process in &processes {
        let mut permit = process.until_ready(()).await.expect("ready");
        permit.observe(&response(200, &[("x-ratelimit-limit-requests", "6")]));
        permit.success();
    }
    processes[0].until_ready(()).await.expect("the first at the lower limit").success();
    assert_timeout(processes[1].until_ready(()).await, Axis::Rate);
}

/// Returns the wait of a process once it has noticed a pause of another one.
#[cfg(feature = "store")]
async fn paused(process: &Outbound, key: &str) -> Duration {
    loop {
        match process.until_ready(key).await {
            Ok(permit) => permit.success(),
            Err(NotReady::Timeout(denied)) => return denied.decision.retry_after.wait().expect("a wait"),
            Err(other) => panic!("{other:?}"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(feature = "store")]
#[tokio::test]
async fn refusals_of_several_processes_are_one_pause_of_all() {
    let store = std::sync::Arc::new(crate::store::MemoryStore::new());
    let process = || {
        let builder = Outbound::shared(store.clone(), "test").requests_per_minute(60_000);
        builder.max_wait(STORE_WAIT).build().expect("valid limits")
    };
    let (refused, other) = ([process(), process(), process()], process());
    let mut permits = Vec::new();
    for process in &refused {
        permits.push(process.until_ready("a").await.expect("no pause"));
    }
    for mut permit in permits {
        permit.observe(&response(429, &[("retry-after", "30"), ("x-ratelimit-limit-requests", "60000")]));
        permit.dropped();
    }
    let wait = paused(&other, "a").await;
    assert!(wait <= Duration::from_secs(30), "the sum of several pauses: {wait:?}");
    other.until_ready("b").await.expect("another key").success();
    assert_eq!(other.stats().refused, 0);
    let never_called = process();
    assert!(never_called.until_ready("a").await.is_err(), "it looks before its first call");
}

#[cfg(feature = "store")]
#[tokio::test]
async fn processes_share_the_ceiling() {
    let store = std::sync::Arc::new(crate::store::MemoryStore::new());
    let process = || {
        let builder = Outbound::shared(store.clone(), "test").requests_per_minute(6).tokens_per_minute(1_000);
        builder.concurrency(4).max_wait(STORE_WAIT).build().expect("valid limits")
    };
    process().until_ready(()).await.expect("the first").success();
    assert_timeout(process().until_ready(()).await, Axis::Rate);
}

#[test]
fn limits_and_settings_out_of_range_are_errors() {
    assert!(Outbound::builder("test").requests_per_minute(0).build().is_err());
    assert!(Outbound::builder("test").tokens_per_minute(0).build().is_err());
    assert!(Outbound::builder("test").max_waiters(0).build().is_err());
    let (builder, second, minute) =
        (|| Outbound::builder("test"), Duration::from_secs(1), Duration::from_secs(60));
    assert!(builder().max_pause(second).expires(second).raise_over(second).build().is_ok());
    for wrong in [
        builder().max_pause(Duration::ZERO),
        builder().max_pause(61 * minute),
        builder().expires(minute - second),
        builder().raise_over(Duration::ZERO),
    ] {
        assert!(matches!(wrong.build(), Err(BuildError::OutOfRange { .. })));
    }
}

#[tokio::test]
async fn a_limiter_is_the_ceiling_and_the_builders_own_limits_are_an_error() {
    let limiter = || Limiter::new(Rate::per_minute(60).burst(1)).expect("a limiter");
    let outbound = at_once(Outbound::limited_by("test", limiter()));
    let mut permit = outbound.until_ready(()).await.expect("the first");
    permit.observe(&response(200, &[("x-ratelimit-limit-requests", "30")]));
    permit.success();
    assert_timeout(outbound.until_ready(()).await, Axis::Rate);
    assert_eq!(outbound.stats().keys[0].requests_per_minute, Some(30));
    assert!(Outbound::limited_by("test", limiter()).tokens_per_minute(1).build().is_err());
}

#[tokio::test]
async fn a_permit_settles_from_the_body_that_was_read() {
    let outbound = at_once(Outbound::builder("test").tokens_per_minute(2_000));
    let mut permit = outbound.until_ready(Call::by("a").cost(100)).await.expect("ready");
    permit.read(br#"{"usage":{"prompt_tokens":4,"completion_"#);
    assert_eq!(permit.usage(), None);
    permit.read(br#"tokens":6,"total_tokens":10}}"#);
    assert_eq!(permit.usage(), Some(Usage::of(4, 6)));
    permit.success();
    outbound.until_ready(Call::by("a").cost(90)).await.expect("the rest returned").success();
}

#[expect(clippy::disallowed_methods, reason = "the tests compare waits of tokio's timer")]
fn now() -> Instant {
    Instant::now()
}
