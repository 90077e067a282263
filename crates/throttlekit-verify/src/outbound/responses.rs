//! Responses of a provider: truthful ones in every style, and hostile ones.

use std::time::Duration;

use http::response::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use throttlekit::rate::Timestamp;

use throttlekit_conformance::Dice;

/// A response, and the truth that it contains.
#[derive(Clone, Debug)]
pub struct Response {
    pub(super) parts: Parts,
    pub(super) body: Vec<u8>,
    pub(super) truth: Truth,
}

/// The information of a response that a client must heed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// Time in which no call may start.
    pub(super) delay: Option<Duration>,
    /// Requests that are left, for this long.
    pub(super) left: Option<(u64, Duration)>,
    /// Requests in a minute.
    pub(super) per_minute: Option<u64>,
    /// `true` if nothing is known about it: it may replace what was reported before.
    pub(super) is_hostile: bool,
}

/// Statuses of hostile responses.
const STATUSES: [u16; 12] = [200, 200, 200, 201, 301, 400, 403, 404, 429, 500, 503, 529];

/// Every header that is read.
const NAMES: [&str; 36] = [
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-requests-limit",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset",
    "anthropic-ratelimit-input-tokens-limit",
    "anthropic-ratelimit-input-tokens-remaining",
    "anthropic-ratelimit-input-tokens-reset",
    "anthropic-ratelimit-output-tokens-limit",
    "anthropic-ratelimit-output-tokens-remaining",
    "anthropic-ratelimit-output-tokens-reset",
    "ratelimit",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-rate-limit-remaining",
    "x-rate-limit-reset",
    "retry-after",
    "retry-after",
    "retry-after-ms",
    "x-ms-retry-after-ms",
    "date",
    "date",
];

/// Values that mean something somewhere, or nearly.
const VALUES: [&str; 40] = [
    "0",
    "1",
    "7",
    "60",
    "3600",
    "86400",
    "1000000",
    "-1",
    "-0",
    "+1",
    "1.5",
    "1e9",
    "NaN",
    "inf",
    "-inf",
    "",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
    "9007199254740993",
    "6m0s",
    "1.5s",
    "120ms",
    "0s",
    "1h0m0s",
    "999999999h",
    "-5s",
    "2026-01-02T03:04:05Z",
    "9999-12-31T23:59:59Z",
    "1970-01-01T00:00:00Z",
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "Fri, 31 Dec 9999 23:59:59 GMT",
    "1700000000",
    "1893456000",
    "1893456000000",
    "\"a\";r=0;t=9999999",
    "\"a\";q=0;w=1",
    "limit=0, remaining=0, reset=99999",
    "(((((((((",
    "\u{ff}\u{fe}",
];

const BODIES: [&str; 7] = [
    "",
    r#"{"error":{"message":"Please try again in 999999999h."}}"#,
    r#"{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"-1s"}]}}"#,
    r#"[{"error":{"details":[{"@type":"google.rpc.RetryInfo","retryDelay":"86400s"}]}}]"#,
    "[[[[[[[[[[[[[[[[",
    "retry after 18446744073709551616 seconds",
    "\u{0}try again in NaN",
];

/// Draws a response to a call. `now` is the client's time; the provider's clock may show any other.
pub(super) fn roll(dice: &mut Dice, now: Timestamp) -> Response {
    if dice.once_in(2) { hostile(dice) } else { truthful(dice, now) }
}

fn hostile(dice: &mut Dice) -> Response {
    let mut response = Response::new(dice.pick(&STATUSES), Truth { is_hostile: true, ..Truth::default() });
    for _ in 0..dice.below(10) {
        let value = hostile_value(dice);
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            response.parts.headers.append(HeaderName::from_static(dice.pick(&NAMES)), value);
        }
    }
    response.body = dice.pick(&BODIES).into();
    response
}

fn hostile_value(dice: &mut Dice) -> Vec<u8> {
    match dice.below(4) {
        0 => dice.any_size(u64::MAX).to_string().into_bytes(),
        1 => (0..dice.below(12)).map(|_| dice.between(32, 255) as u8).collect(),
        _ => dice.pick(&VALUES).into(),
    }
}

fn truthful(dice: &mut Dice, now: Timestamp) -> Response {
    let refusal = dice.pick(&[429, 429, 503, 529]);
    let secs = dice.pick(&[0, 1, 2, 7, 23, 59, 61, 100, 3_600]);
    let left = dice.pick(&[0, 0, 1, 2, 5]);
    let delay = Truth { delay: Some(Duration::from_secs(secs)), ..Truth::default() };
    let remains = Truth { left: Some((left, Duration::from_secs(secs))), ..Truth::default() };
    let with = |status: u16, truth: Truth, pairs: &[(&'static str, String)]| {
        pairs.iter().fold(Response::new(status, truth), |response, (name, value)| response.with(name, value))
    };
    let server = Server::roll(dice, now);
    match dice.below(12) {
        0 => with(refusal, delay, &[("retry-after", secs.to_string())]),
        1 => with(refusal, delay, &[("retry-after-ms", (secs * 1_000).to_string())]),
        2 => with(refusal, delay, &[server.date(), ("retry-after", http_date(server.secs + secs))]),
        3 => Response { body: delaying_body(dice, secs), ..with(refusal, delay, &[]) },
        4 | 5 => {
            let names = ["x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"];
            with(
                200,
                remains,
                &[(names[0], left.to_string()), (names[1], format!("{}m{}s", secs / 60, secs % 60))],
            )
        }
        6 | 7 => {
            let names = ["anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"];
            let reset = rfc3339(server.secs + secs);
            with(200, remains, &[server.date(), (names[0], left.to_string()), (names[1], reset)])
        }
        8 => {
            let reset = (server.secs + secs).to_string();
            let pairs =
                [server.date(), ("x-ratelimit-remaining", left.to_string()), ("x-ratelimit-reset", reset)];
            with(200, remains, &pairs)
        }
        9 => with(200, remains, &[("ratelimit", format!("\"a\";r={left};t={secs}"))]),
        10 => {
            let limit = dice.pick(&[0, 1, 5, 30, 60, 100, 1_000, 1_000_000_000]);
            let truth = Truth { per_minute: Some(limit), ..Truth::default() };
            with(200, truth, &[("x-ratelimit-limit-requests", limit.to_string())])
        }
        _ => with(dice.pick(&[200, 200, 400, 500]), Truth::default(), &[]),
    }
}

fn delaying_body(dice: &mut Dice, secs: u64) -> Vec<u8> {
    if dice.once_in(2) {
        return format!(r#"{{"error":{{"message":"Please try again in {secs}s. See the docs."}}}}"#).into();
    }
    let detail = format!(r#"{{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"{secs}s"}}"#);
    format!(r#"{{"error":{{"code":429,"details":[{detail}]}}}}"#).into()
}

impl Response {
    fn new(status: u16, truth: Truth) -> Self {
        let status = StatusCode::from_u16(status).expect("a status");
        let (mut parts, ()) = http::Response::new(()).into_parts();
        parts.status = status;
        Self { parts, body: Vec::new(), truth }
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_str(value).expect("a value");
        self.parts.headers.insert(HeaderName::from_static(name), value);
        self
    }
}

/// The provider's clock.
struct Server {
    secs: u64,
}

impl Server {
    fn roll(dice: &mut Dice, now: Timestamp) -> Self {
        let secs = now.as_nanos() / 1_000_000_000;
        let year = 31_536_000;
        Self { secs: dice.pick(&[secs, secs, secs - year, secs + year, secs - 3_600, secs + 40, secs - 40]) }
    }

    fn date(&self) -> (&'static str, String) {
        ("date", http_date(self.secs))
    }
}

/// Formats seconds since the epoch by RFC 3339.
fn rfc3339(secs: u64) -> String {
    let ([year, month, day], [hour, minute, second]) = civil(secs);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn http_date(secs: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let ([year, month, day], [hour, minute, second]) = civil(secs);
    let month = MONTHS[month as usize - 1];
    format!("Thu, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Returns date and time, by counting years and months: slow, and plainly right.
fn civil(secs: u64) -> ([u64; 3], [u64; 3]) {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut days, mut year, mut month) = (secs / 86_400, 1_970, 1);
    let days_of = |year: u64, month: u64| match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    while days >= days_of(year, month) {
        days -= days_of(year, month);
        month += 1;
    }
    ([year, month, days + 1], [secs / 3_600 % 24, secs / 60 % 60, secs % 60])
}
