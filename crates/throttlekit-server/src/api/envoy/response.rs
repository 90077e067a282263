//! Responses to Envoy, computed from those of the engine.

use std::time::Duration;

use throttlekit::rate::Timestamp;
use throttlekit::{Decision, Retry};
use throttlekit_proto::envoy::{Code, DescriptorStatus, HeaderValue, RateLimit, RateLimitResponse};

use super::metadata;
use super::request::{Charge, Judged};
use super::rules::{Adds, Table};
use super::statistics::RuleCounts;
use crate::api::http::forward_auth::{self, period};
use crate::engine::{Answered, Refusal};
use crate::policy::HeadersSpec;

/// Maximum number of seconds of a duration on the wire.
const SECONDS_MAX: u64 = 315_576_000_000;

/// One descriptor with its charge and its result.
pub(super) struct Told<'a> {
    pub(super) charge: &'a Charge<'a>,
    pub(super) judged: Judged,
}

impl Told<'_> {
    /// Returns the policy and its response.
    pub(super) fn answered(&self) -> Option<(&str, &Answered)> {
        match (self.charge, &self.judged) {
            (Charge::Of { policy, .. }, Judged::Answered(answer)) => Some((policy, answer)),
            _ => None,
        }
    }

    /// Counts the descriptor for its rule.
    pub(super) fn count(&self, counts: &RuleCounts) {
        let Charge::Of { rule, .. } = self.charge else { return };
        match &self.judged {
            Judged::Answered(answer) => counts.count(*rule, !answer.decision.allowed),
            Judged::Refused => counts.count(*rule, true),
            Judged::Passes | Judged::Failed(_) => {}
        }
    }

    /// Returns the reason why there is no decision.
    pub(super) fn failure(self) -> Option<Refusal> {
        match self.judged {
            Judged::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}

pub(super) fn response(table: &Table, adds: Adds, told: &[Told<'_>], now: Timestamp) -> RateLimitResponse {
    let statuses: Vec<_> = told.iter().map(|told| status(table, told, now)).collect();
    let over = statuses.iter().any(|status| status.code() == Code::OverLimit);
    let binding = told.iter().filter_map(Told::answered).max_by_key(|(_, answer)| tightness(answer));
    RateLimitResponse {
        overall_code: if over { Code::OverLimit } else { Code::Ok }.into(),
        statuses,
        response_headers_to_add: headers(table, adds.headers, told, binding, now),
        dynamic_metadata: if adds.metadata { metadata::of(binding, told) } else { None },
        ..Default::default()
    }
}

fn status(table: &Table, told: &Told<'_>, now: Timestamp) -> DescriptorStatus {
    let passes = DescriptorStatus { code: Code::Ok.into(), ..Default::default() };
    if matches!(told.judged, Judged::Refused) {
        return DescriptorStatus { code: Code::OverLimit.into(), ..passes };
    }
    let Some((policy, answer)) = told.answered() else {
        let unlimited = *told.charge == Charge::Unlimited;
        return DescriptorStatus { limit_remaining: if unlimited { u32::MAX } else { 0 }, ..passes };
    };
    let decision = &answer.decision;
    let code = if decision.allowed { Code::Ok } else { Code::OverLimit };
    if decision.limit == u64::MAX {
        // An unlimited policy has no limit to report.
        return DescriptorStatus { code: code.into(), limit_remaining: u32::MAX, ..passes };
    }
    let told_limit =
        || table.told(policy).map_or((decision.limit, Default::default()), |told| told.per_unit(answer));
    let (requests, unit) = match told.charge {
        Charge::Of { own_limit: Some(limit), .. } => (limit.requests.into(), limit.unit),
        _ => told_limit(),
    };
    let limit = RateLimit { requests_per_unit: clamped(requests), unit: unit.into(), name: policy.into() };
    DescriptorStatus {
        code: code.into(),
        current_limit: Some(limit),
        limit_remaining: clamped(decision.remaining),
        duration_until_reset: Some(whole_seconds(until_reset(decision, now))),
    }
}

/// Orders responses; the greatest is the one to report: the denial with the longest wait, else the least remaining.
fn tightness(answer: &Answered) -> (bool, Duration, std::cmp::Reverse<u64>) {
    let Decision { allowed, remaining, retry_after, .. } = answer.decision;
    let wait = if allowed { Duration::ZERO } else { retry_after.wait().unwrap_or(Duration::MAX) };
    (!allowed, wait, std::cmp::Reverse(remaining))
}

/// Returns the time until reset: for a denied request until it would be allowed, otherwise until the limit is full
/// again.
fn until_reset(decision: &Decision, now: Timestamp) -> Duration {
    match decision.retry_after {
        Retry::After(wait) if !decision.allowed => wait,
        _ => decision.reset_at.since(now),
    }
}

fn headers(
    table: &Table,
    style: HeadersSpec,
    told: &[Told<'_>],
    binding: Option<(&str, &Answered)>,
    now: Timestamp,
) -> Vec<HeaderValue> {
    let mut lines = binding.map_or_else(Vec::new, |(_, answer)| written(style, answer, now));
    if matches!(style, HeadersSpec::Draft | HeadersSpec::Both) {
        lines.extend(draft(table, told));
    }
    lines
}

/// Returns the headers of the IETF draft: lists with a member for each policy.
fn draft(table: &Table, told: &[Told<'_>]) -> Vec<HeaderValue> {
    let mut answered: Vec<_> = told.iter().filter_map(Told::answered).collect();
    // Of several descriptors with one policy, the tightest.
    answered.sort_by_key(|(policy, answer)| (*policy, std::cmp::Reverse(tightness(answer))));
    answered.dedup_by_key(|(policy, _)| *policy);
    let each: Vec<_> = answered
        .into_iter()
        .map(|(policy, answer)| {
            let spec = table.file.policies.get(policy);
            forward_auth::told(policy, answer, spec.and_then(|spec| period(spec, answer)))
        })
        .collect();
    let line = |name: &str| {
        let members = each.iter().filter_map(|response| response.headers().get(name)?.to_str().ok());
        let value = members.collect::<Vec<_>>().join(", ");
        (!value.is_empty()).then(|| HeaderValue { key: name.into(), value, ..Default::default() })
    };
    ["ratelimit-policy", "ratelimit"].into_iter().filter_map(line).collect()
}

fn written(headers: HeadersSpec, answer: &Answered, now: Timestamp) -> Vec<HeaderValue> {
    let decision = &answer.decision;
    let header = |key: &str, value: u64| HeaderValue {
        key: key.into(),
        value: value.to_string(),
        ..Default::default()
    };
    let mut lines = Vec::new();
    if matches!(headers, HeadersSpec::All | HeadersSpec::Both) && decision.limit != u64::MAX {
        lines.push(header("x-ratelimit-limit", decision.limit));
        lines.push(header("x-ratelimit-remaining", decision.remaining));
        lines.push(header("x-ratelimit-reset", seconds_ceil(until_reset(decision, now))));
    }
    if headers != HeadersSpec::None && !decision.allowed {
        let wait = decision.retry_after.wait().map(|wait| seconds_ceil(wait).max(1));
        lines.extend(wait.map(|seconds| header("retry-after", seconds)));
    }
    lines
}

/// Rounds up: Envoy truncates to seconds, so clients would retry too early.
fn whole_seconds(wait: Duration) -> prost_types::Duration {
    let seconds = i64::try_from(seconds_ceil(wait).min(SECONDS_MAX)).unwrap_or(i64::MAX);
    prost_types::Duration { seconds, nanos: 0 }
}

fn seconds_ceil(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

fn clamped(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
