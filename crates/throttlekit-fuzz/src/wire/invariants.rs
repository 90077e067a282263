//! Invariants of every response.

use throttlekit_proto::envoy::{Code, RateLimitRequest, RateLimitResponse};
use throttlekit_proto::v1::{Decision, Forecast, Lease, Retry};

pub(super) fn decision(decision: Option<Decision>) {
    judge(decision, false);
}

/// The same for a response that the price may have decided: then no wait helps, and none is reported.
pub(super) fn admission(decision: Option<Decision>, by_price: bool) {
    judge(decision, by_price);
}

fn judge(decision: Option<Decision>, by_price: bool) {
    let it = decision.expect("an answer has a decision");
    let numbers = [it.limit, it.remaining, it.reset_at, it.retry_after_ms, it.overshoot_bound];
    assert!(numbers.iter().all(|number| *number >= 0), "below nothing: {it:?}");
    assert!(it.remaining <= it.limit, "more is left than there is: {it:?}");
    assert!(["exact", "bounded", "local", "open", "closed"].contains(&&*it.guarantee), "{it:?}");
    assert!(it.retry() != Retry::Unspecified, "it does not say what to do: {it:?}");
    if !it.allowed {
        let waits = it.retry() != Retry::Now && it.retry_after_ms > 0;
        assert!(waits != by_price, "denied, and told not to wait: {it:?}");
        assert!(!it.shadow_denied, "who only looks denies nothing: {it:?}");
    }
}

pub(super) fn forecast(forecast: Option<Forecast>) {
    let it = forecast.expect("an answer has a forecast");
    let numbers = [it.spendable_now, it.next_replenish_at, it.full_at];
    assert!(numbers.iter().all(|number| *number >= 0), "below nothing: {it:?}");
    assert!(it.next_replenish_at <= it.full_at, "full before anything came back: {it:?}");
}

pub(super) fn lease(lease: Option<Lease>, wants: i64) {
    let it = lease.expect("an answer has a lease");
    let numbers = [
        it.capacity,
        it.expiry_ms,
        it.refresh_interval_ms,
        it.safe_capacity,
        it.retry_after_ms,
        it.limit,
        it.lease_for_ms,
    ];
    assert!(numbers.iter().all(|number| *number >= 0), "below nothing: {it:?}");
    assert!(it.capacity <= wants.max(1) && it.capacity <= it.limit, "more than was asked or is: {it:?}");
    assert!(it.safe_capacity <= it.capacity, "more is safe than was lent: {it:?}");
}

pub(super) fn envoy(asked: &RateLimitRequest, told: &RateLimitResponse) {
    assert_eq!(told.statuses.len(), asked.descriptors.len(), "not one answer for each descriptor");
    let over = told.statuses.iter().any(|status| status.code() == Code::OverLimit);
    assert_eq!(told.overall_code() == Code::OverLimit, over, "the whole is not the sum: {told:?}");
    assert!(told.statuses.iter().all(|status| status.code() != Code::Unknown), "{told:?}");
    for wait in told.statuses.iter().filter_map(|status| status.duration_until_reset.as_ref()) {
        assert!(wait.seconds >= 0 && wait.nanos == 0, "{told:?}");
    }
}
