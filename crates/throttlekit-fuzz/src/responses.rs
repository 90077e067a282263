//! A response of a provider, with any headers and any body.

use std::cell::LazyCell;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::response::Parts;
use throttlekit::clock::ManualClock;
use throttlekit::outbound::{Outbound, OutboundPermit, Quota, Reported, Usage};
use throttlekit::rate::Timestamp;
use throttlekit::wait::NotReady;
use throttlekit::{Budget, Call, Policy, Rate};
use tokio::runtime::{Builder, Runtime};

/// Longest delay that is believed.
const DELAY_MAX: Duration = Duration::from_secs(32 * 86_400);
const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// Longest time for which a response stops calls.
const PAUSE_MAX: Duration = Duration::from_secs(60);
const REQUESTS: u64 = 60;
const TOKENS: u64 = 9_000;
/// Memory for one key.
const MEMORY_BYTES: usize = 1 << 16;

thread_local! {
    /// For the timers that a queue creates. None of them is waited for.
    static RUNTIME: LazyCell<Runtime> =
        LazyCell::new(|| Builder::new_current_thread().enable_time().build().expect("a runtime"));
}

/// Reads bytes as a response: a status, headers, an empty line, a body. Reads its limits, learns from them,
/// and reads its usage: the learned limits delay the next call by at most a pause, and pieces of a body give
/// the same usage as the whole.
pub fn responses(data: &[u8]) -> bool {
    let (head, body) = split(data);
    let parts = head_of(head);
    RUNTIME.with(|runtime| {
        let _entered = runtime.enter();
        let clock = ManualClock::at(NOW);
        let outbound = outbound(&clock);
        let mut permit = call(&outbound).expect("nothing is learned yet");
        let reported = permit.observe_body(&parts, body);
        judge(&reported);
        judge_learned(&outbound, &clock);
        let usage = read_usage(&outbound, &clock, body, body.len() / 2);
        let whole = read_usage(&outbound, &clock, body, 0);
        assert_eq!(usage, whole, "the usage depends on where pieces end");
        reported.is_informative() || usage.is_some()
    })
}

fn outbound(clock: &ManualClock) -> Outbound {
    let policy =
        Policy::builder("provider").rate(Rate::per_minute(REQUESTS)).tokens(Budget::per_minute(TOKENS));
    let policy = policy.memory_budget(MEMORY_BYTES).clock(clock.clone()).build().expect("a policy");
    Outbound::limited_by("provider", Arc::new(policy)).max_wait(Duration::ZERO).build().expect("an upstream")
}

/// Requests a call, which does not wait.
fn call(outbound: &Outbound) -> Result<OutboundPermit, NotReady> {
    match pin!(outbound.until_ready(Call::by("key").cost(100))).poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("a call waits"),
    }
}

/// Splits at the first empty line.
fn split(data: &[u8]) -> (&[u8], &[u8]) {
    match data.windows(2).position(|pair| pair == b"\n\n") {
        Some(at) => (&data[..at], &data[at + 2..]),
        None => (data, b""),
    }
}

fn head_of(head: &[u8]) -> Parts {
    let mut lines = head.split(|byte| *byte == b'\n');
    let status = http::StatusCode::from_bytes(lines.next().unwrap_or_default());
    let headers = lines.filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = http::HeaderName::from_bytes(&line[..colon]).ok()?;
        Some((name, http::HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?))
    });
    let (mut parts, ()) = http::Response::new(()).into_parts();
    headers.for_each(|(name, value)| _ = parts.headers.append(name, value));
    parts.status = status.unwrap_or(http::StatusCode::TOO_MANY_REQUESTS);
    parts
}

fn judge(reported: &Reported) {
    let Reported { requests, tokens, input_tokens, output_tokens, retry_after, .. } = *reported;
    let resets = [requests, tokens, input_tokens, output_tokens]
        .map(|quota| quota.and_then(|quota: Quota| quota.reset));
    for delay in resets.into_iter().chain([retry_after]).flatten() {
        assert!(delay <= DELAY_MAX, "a delay of {delay:?} is believed");
    }
}

fn judge_learned(outbound: &Outbound, clock: &ManualClock) {
    let learned = &outbound.stats().keys[0];
    assert!(learned.requests_per_minute <= Some(REQUESTS) && learned.tokens_per_minute <= Some(TOKENS));
    let Err(not_ready) = call(outbound) else { return };
    let wait = not_ready.denied().and_then(|denied| denied.decision.retry_after.wait()).expect("a wait");
    assert!(wait <= PAUSE_MAX, "a wait of {wait:?}");
    clock.advance(wait);
    let later = call(outbound).map(|_| ());
    assert_eq!(later, Ok(()), "waited {wait:?}, and more");
}

/// Reads the usage of a body in two pieces.
fn read_usage(outbound: &Outbound, clock: &ManualClock, body: &[u8], cut: usize) -> Option<Usage> {
    clock.advance(PAUSE_MAX * 20); // what was learned expires
    let mut permit = call(outbound).expect("nothing is learned");
    permit.read(&body[..cut]);
    permit.read(&body[cut..]);
    permit.usage()
}
