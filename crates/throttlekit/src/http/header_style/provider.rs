//! Headers of providers of language models.

use std::fmt::Write;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::{Reported, clamp, secs_ceil, tightest};
use crate::admit::Axis;
use crate::clock::{Clock, WallClock};
use crate::rate::Timestamp;

/// Names of the headers of one kind of units: the limit, what remains, the reset.
type Names = [HeaderName; 3];

const OPENAI_REQUESTS: Names = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
const OPENAI_TOKENS: Names = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];
const ANTHROPIC_REQUESTS: Names = [
    HeaderName::from_static("anthropic-ratelimit-requests-limit"),
    HeaderName::from_static("anthropic-ratelimit-requests-remaining"),
    HeaderName::from_static("anthropic-ratelimit-requests-reset"),
];
const ANTHROPIC_TOKENS: Names = [
    HeaderName::from_static("anthropic-ratelimit-tokens-limit"),
    HeaderName::from_static("anthropic-ratelimit-tokens-remaining"),
    HeaderName::from_static("anthropic-ratelimit-tokens-reset"),
];

pub(super) fn write_openai(headers: &mut HeaderMap, reported: &[Reported]) {
    write_kinds(headers, reported, [&OPENAI_REQUESTS, &OPENAI_TOKENS], duration);
}

pub(super) fn write_anthropic(headers: &mut HeaderMap, reported: &[Reported]) {
    let now = WallClock.now();
    write_kinds(headers, reported, [&ANTHROPIC_REQUESTS, &ANTHROPIC_TOKENS], |reset| rfc3339(now + reset));
}

/// Writes the rate axis as requests, and the tighter of the cost axis and the fair share as tokens.
fn write_kinds(
    headers: &mut HeaderMap,
    reported: &[Reported],
    [requests, tokens]: [&Names; 2],
    encode: impl Fn(Duration) -> String,
) {
    let (rates, costs): (Vec<_>, Vec<_>) = reported.iter().partition(|axis| axis.axis == Axis::Rate);
    for (names, axes) in [(requests, rates), (tokens, costs)] {
        if let Some(tightest) = tightest(axes) {
            write_one(headers, names, tightest, &encode);
        }
    }
}

/// Writes one set of headers, unless an inner layer wrote one of a tighter limit.
fn write_one(headers: &mut HeaderMap, names: &Names, axis: &Reported, encode: &impl Fn(Duration) -> String) {
    let [limit, remaining, reset] = names;
    let inner = headers.get(remaining).and_then(|inner| inner.to_str().ok()?.parse::<u64>().ok());
    if inner.is_some_and(|inner| inner < axis.decision.remaining) {
        return;
    }
    headers.insert(limit, clamp(axis.decision.limit).into());
    headers.insert(remaining, clamp(axis.decision.remaining).into());
    match axis.reset().map(encode).and_then(|reset| HeaderValue::try_from(reset).ok()) {
        Some(value) => headers.insert(reset, value),
        None => headers.remove(reset),
    };
}

/// Formats a duration, rounded up: `120ms` below a second, otherwise `1s`, `6m0s`, `1h0m0s`.
fn duration(reset: Duration) -> String {
    if reset < Duration::from_secs(1) {
        return format!("{}ms", reset.as_nanos().div_ceil(1_000_000));
    }
    let secs = secs_ceil(reset);
    let (hours, minutes, secs) = (secs / 3_600, secs / 60 % 60, secs % 60);
    let mut text = String::new();
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(text, "{minutes}m");
    }
    let _ = write!(text, "{secs}s");
    text
}

/// Formats a time in UTC, rounded up to whole seconds: `2026-01-02T03:04:05Z`.
fn rfc3339(at: Timestamp) -> String {
    let secs = secs_ceil(at.since(Timestamp::EPOCH));
    let (days, of_day) = (secs / 86_400, secs % 86_400);
    // Years that begin in March make February last, so a month's offset in its year is linear. Day 0 of the first era of
    // 400 years is 719,468 days before the epoch.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_openai_writes_them() {
        for (millis, text) in [
            (0, "0ms"),
            (120, "120ms"),
            (1_000, "1s"),
            (1_001, "2s"),
            (60_000, "1m0s"),
            (360_000, "6m0s"),
            (3_723_000, "1h2m3s"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(duration(Duration::from_nanos(1)), "1ms");
    }

    #[test]
    fn times_read_as_rfc_3339() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::from_millis(secs * 1_000)), text);
        }
        assert_eq!(rfc3339(Timestamp::from_millis(1)), "1970-01-01T00:00:01Z");
    }
}
