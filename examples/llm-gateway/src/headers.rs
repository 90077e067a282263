//! `x-ratelimit-*` as OpenAI's clients read them: one set for requests, one for tokens, each by its own axis.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use throttlekit::Decision;
use throttlekit::rate::Timestamp;

/// What one axis has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Room {
    /// How much there is when nothing is used.
    pub limit: u64,
    /// How much is left.
    pub remaining: u64,
    /// After how long all of it is there again.
    pub reset: Duration,
}

impl Room {
    /// What a decision tells, at a time by the same clock.
    pub fn of(decision: &Decision, now: Timestamp) -> Self {
        Self { limit: decision.limit, remaining: decision.remaining, reset: decision.reset_at.since(now) }
    }
}

/// What is left of both that a tenant is told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Rooms {
    /// Requests a minute.
    pub requests: Option<Room>,
    /// Tokens a window.
    pub tokens: Option<Room>,
}

const REQUESTS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
const TOKENS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

impl Rooms {
    /// Writes what is known.
    pub fn write(&self, headers: &mut HeaderMap) {
        for (names, room) in [(REQUESTS, self.requests), (TOKENS, self.tokens)] {
            let Some(room) = room else { continue };
            let [limit, remaining, reset] = names;
            headers.insert(limit, HeaderValue::from(room.limit));
            headers.insert(remaining, HeaderValue::from(room.remaining));
            headers
                .insert(reset, HeaderValue::try_from(go_duration(room.reset)).expect("digits and letters"));
        }
    }
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
        let room = |limit| Some(Room { limit, remaining: limit - 1, reset: Duration::from_millis(limit) });
        let mut headers = HeaderMap::new();
        Rooms { requests: room(60), tokens: room(1_000) }.write(&mut headers);
        assert_eq!(headers["x-ratelimit-limit-requests"], "60");
        assert_eq!(headers["x-ratelimit-remaining-requests"], "59");
        assert_eq!(headers["x-ratelimit-reset-requests"], "60ms");
        assert_eq!(headers["x-ratelimit-limit-tokens"], "1000");
        assert_eq!(headers["x-ratelimit-reset-tokens"], "1s");
    }
}
