//! Rate limit headers by the conventions of each provider: one set for requests, one for tokens, each by its own axis.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp as Date;
use serde::{Deserialize, Serialize};
use throttlekit::Decision;
use throttlekit::clock::{Clock, WallClock};
use throttlekit::rate::Timestamp;

use crate::api::Family;

/// Units that one axis has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Allowance {
    /// Units when nothing is used.
    pub limit: u64,
    /// Units left.
    pub remaining: u64,
    /// After how long all of it is there again.
    pub reset: Duration,
}

impl Allowance {
    /// Converts a decision, at a time by the same clock.
    pub fn of(decision: &Decision, now: Timestamp) -> Self {
        Self { limit: decision.limit, remaining: decision.remaining, reset: decision.reset_at.since(now) }
    }
}

/// Units left of the two limits that are reported to a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Allowances {
    /// Requests per minute.
    pub requests: Option<Allowance>,
    /// Tokens per window.
    pub tokens: Option<Allowance>,
}

/// Names of one set: limit, remaining, reset.
type Names = [&'static str; 3];

/// Returns the names for requests and for tokens.
const fn names(family: Family) -> [Names; 2] {
    match family {
        Family::OpenAi => [
            ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
            ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
        ],
        Family::Anthropic => [
            [
                "anthropic-ratelimit-requests-limit",
                "anthropic-ratelimit-requests-remaining",
                "anthropic-ratelimit-requests-reset",
            ],
            [
                "anthropic-ratelimit-tokens-limit",
                "anthropic-ratelimit-tokens-remaining",
                "anthropic-ratelimit-tokens-reset",
            ],
        ],
    }
}

impl Allowances {
    /// Writes the headers.
    pub fn write(&self, family: Family, headers: &mut HeaderMap) {
        for (names, allowance) in names(family).into_iter().zip([self.requests, self.tokens]) {
            let Some(allowance) = allowance else { continue };
            let [limit, remaining, reset] = names.map(HeaderName::from_static);
            let resets = match family {
                Family::OpenAi => go_duration(allowance.reset),
                Family::Anthropic => date(WallClock.now() + allowance.reset),
            };
            headers.insert(limit, HeaderValue::from(allowance.limit));
            headers.insert(remaining, HeaderValue::from(allowance.remaining));
            headers.insert(reset, HeaderValue::try_from(resets).expect("digits and letters"));
        }
    }
}

/// Formats a time by RFC 3339, in whole seconds, rounded up.
fn date(time: Timestamp) -> String {
    let seconds = time.as_millis_ceil().div_ceil(1_000);
    Date::from_second(seconds as i64).unwrap_or(Date::MAX).to_string()
}

/// A duration as Go prints it, which is how OpenAI does: `12ms`, `1.5s`, `6m0s`, `1h0m30s`; in whole milliseconds, rounded
/// up, since a client that comes back too early is denied again.
pub fn go_duration(duration: Duration) -> String {
    let ms = duration.as_nanos().div_ceil(1_000_000);
    let (hours, minutes) = (ms / 3_600_000, ms / 60_000 % 60);
    match (hours, minutes) {
        (0, 0) if ms < 1_000 => {
            if ms == 0 {
                "0s".to_owned()
            } else {
                format!("{ms}ms")
            }
        }
        (0, 0) => seconds(ms),
        (0, _) => format!("{minutes}m{}", seconds(ms % 60_000)),
        (_, _) => format!("{hours}h{minutes}m{}", seconds(ms % 60_000)),
    }
}

fn seconds(ms: u128) -> String {
    let (whole, part) = (ms / 1_000, ms % 1_000);
    if part == 0 {
        format!("{whole}s")
    } else {
        format!("{whole}.{part:03}").trim_end_matches('0').to_owned() + "s"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_go_prints_them_and_never_too_short() {
        let cases = [
            (0, "0s"),
            (1, "1ms"),
            (12_000_000, "12ms"),
            (12_000_001, "13ms"),
            (999_000_001, "1s"),
            (1_500_000_000, "1.5s"),
            (59_999_000_001, "1m0s"),
            (61_050_000_000, "1m1.05s"),
            (360_000_000_000, "6m0s"),
            (3_630_000_000_000, "1h0m30s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), text, "{nanos}");
        }
    }

    #[test]
    fn each_set_is_of_its_own_axis() {
        let allowance =
            |limit| Some(Allowance { limit, remaining: limit - 1, reset: Duration::from_millis(limit) });
        let mut headers = HeaderMap::new();
        let allowances = Allowances { requests: allowance(60), tokens: allowance(1_000) };
        allowances.write(Family::OpenAi, &mut headers);
        assert_eq!(headers["x-ratelimit-limit-requests"], "60");
        assert_eq!(headers["x-ratelimit-remaining-requests"], "59");
        assert_eq!(headers["x-ratelimit-reset-requests"], "60ms");
        assert_eq!(headers["x-ratelimit-limit-tokens"], "1000");
        assert_eq!(headers["x-ratelimit-reset-tokens"], "1s");
    }
    #[test]
    fn anthropic_headers_have_the_time_of_the_reset() {
        let allowance = Some(Allowance { limit: 60, remaining: 59, reset: Duration::from_secs(60) });
        let mut headers = HeaderMap::new();
        Allowances { requests: allowance, tokens: None }.write(Family::Anthropic, &mut headers);
        assert_eq!(headers["anthropic-ratelimit-requests-limit"], "60");
        assert_eq!(headers["anthropic-ratelimit-requests-remaining"], "59");
        let reset: Date = headers["anthropic-ratelimit-requests-reset"].to_str().unwrap().parse().unwrap();
        let now = (WallClock.now().as_nanos() / 1_000_000_000) as i64;
        assert!((now + 55..=now + 61).contains(&reset.as_second()), "{reset}");
        assert_eq!(headers.len(), 3);
        assert_eq!(date(Timestamp::from_nanos(1_718_810_564_000_000_001)), "2024-06-19T15:22:45Z");
    }
}
