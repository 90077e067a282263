//! Rate-limit information of one response.

mod body;
mod date;
mod fields;
#[cfg(test)]
mod tests;
mod value;

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use throttlekit_core::Timestamp;

use value::ResponseClock;

/// Period of the limits of OpenAI and Anthropic, which their headers do not state.
const MINUTE: Duration = Duration::from_secs(60);
/// Periods that providers have limits for.
const PERIODS: [u64; 4] = [1, 60, 3_600, 86_400];
/// A period is recognized if it is off by at most this part of it.
const PERIOD_TOLERANCE: u128 = 16;
const OVERLOADED: u16 = 529;

/// Names of the headers of one limit: the limit, what remains, the reset.
type Names = [&'static str; 3];

const OPENAI_REQUESTS: Names =
    ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"];
const OPENAI_TOKENS: Names =
    ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"];
const ANTHROPIC_REQUESTS: Names = [
    "anthropic-ratelimit-requests-limit",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
];
const ANTHROPIC_TOKENS: Names = [
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset",
];
const ANTHROPIC_INPUT: Names = [
    "anthropic-ratelimit-input-tokens-limit",
    "anthropic-ratelimit-input-tokens-remaining",
    "anthropic-ratelimit-input-tokens-reset",
];
const ANTHROPIC_OUTPUT: Names = [
    "anthropic-ratelimit-output-tokens-limit",
    "anthropic-ratelimit-output-tokens-remaining",
    "anthropic-ratelimit-output-tokens-reset",
];
/// Sets that most APIs have. Their period is unknown.
const LEGACY: [Names; 3] = [
    ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
    ["x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset"],
];

/// The rate-limit information of one response.
///
/// Read from any bytes: values that cannot be true (negative, not a number, more than 32 days ahead) are ignored, and
/// instants are compared with the `Date` of the same response, so that a wrong clock on either side does not matter.
///
/// | header or body | providers |
/// |---|---|
/// | `x-ratelimit-{limit,remaining,reset}-{requests,tokens}` | OpenAI, Azure, Groq and others |
/// | `anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}` | Anthropic |
/// | `RateLimit`, `RateLimit-Policy`, `RateLimit-{Limit,Remaining,Reset}` | the IETF drafts |
/// | `X-RateLimit-{Limit,Remaining,Reset}` | GitHub and others |
/// | `Retry-After`, `retry-after-ms` | all |
/// | `google.rpc.RetryInfo`, "try again in 1.2s" | bodies of Gemini, OpenAI and Azure |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reported {
    /// Status of the response.
    pub status: StatusCode,
    /// Limit on requests.
    pub requests: Option<Quota>,
    /// Limit on tokens of input and output together.
    pub tokens: Option<Quota>,
    /// Limit on tokens of input.
    pub input_tokens: Option<Quota>,
    /// Limit on tokens of output.
    pub output_tokens: Option<Quota>,
    /// Time to wait before the next request. Only of an error.
    pub retry_after: Option<Duration>,
}

/// One limit of a provider, as a response reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quota {
    /// Units when nothing is used.
    pub limit: Option<u64>,
    /// Units left.
    pub remaining: Option<u64>,
    /// Time until all units are back.
    pub reset: Option<Duration>,
    /// Length of the window, or time in which an empty bucket fills.
    pub period: Option<Duration>,
}

impl Reported {
    /// Reads a response. The body is read only if it is a refusal, and may be empty. `now` is compared with instants if
    /// the response has no `Date`.
    ///
    /// ```
    /// use http::{HeaderMap, StatusCode};
    /// use throttlekit::{outbound::Reported, rate::Timestamp};
    ///
    /// let mut headers = HeaderMap::new();
    /// headers.insert("x-ratelimit-remaining-requests", "59".parse()?);
    /// headers.insert("x-ratelimit-reset-requests", "1s".parse()?);
    /// let reported = Reported::of(StatusCode::OK, &headers, b"", Timestamp::EPOCH);
    /// assert_eq!(reported.requests.and_then(|requests| requests.remaining), Some(59));
    /// # Ok::<(), http::header::InvalidHeaderValue>(())
    /// ```
    pub fn of(status: StatusCode, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Self {
        let clock = ResponseClock::of(headers, now);
        let by_minute = |names: Names| Quota::read(headers, clock, names, Some(MINUTE));
        let legacy = || LEGACY.into_iter().find_map(|names| Quota::read(headers, clock, names, None));
        let [requests, tokens] = fields::read(headers, clock);
        let requests = by_minute(OPENAI_REQUESTS).or_else(|| by_minute(ANTHROPIC_REQUESTS)).or(requests);
        Self {
            status,
            requests: requests.or_else(legacy),
            tokens: by_minute(OPENAI_TOKENS).or_else(|| by_minute(ANTHROPIC_TOKENS)).or(tokens),
            input_tokens: by_minute(ANTHROPIC_INPUT),
            output_tokens: by_minute(ANTHROPIC_OUTPUT),
            retry_after: is_error(status).then(|| delay(status, headers, body, clock)).flatten(),
        }
    }

    /// Checks whether the provider refused the request because of a limit or of overload: 429, 503, 529, and 403 with a
    /// delay or an exhausted limit, as GitHub has it.
    pub fn is_refusal(&self) -> bool {
        let is_exhausted = self.requests.is_some_and(|requests| requests.remaining == Some(0));
        is_refusal(self.status)
            || self.status == StatusCode::FORBIDDEN && (self.retry_after.is_some() || is_exhausted)
    }

    /// Checks whether the response has any information about limits.
    pub fn is_informative(&self) -> bool {
        let quotas = [self.requests, self.tokens, self.input_tokens, self.output_tokens];
        self.is_refusal() || self.retry_after.is_some() || quotas.iter().any(Option::is_some)
    }

    /// Checks whether the response reports a limit, so that none has to be guessed.
    pub(super) fn has_limit(&self) -> bool {
        [self.requests, self.all_tokens()].iter().flatten().any(|quota| quota.limit.is_some())
    }

    /// Returns the limit that counts the tokens of a call: of all tokens, or else the part that leaves less.
    pub(super) fn all_tokens(&self) -> Option<Quota> {
        let parts = [self.input_tokens, self.output_tokens].into_iter().flatten();
        self.tokens.or_else(|| parts.min_by_key(|part| part.remaining))
    }
}

impl Quota {
    /// Reads three headers.
    fn read(
        headers: &HeaderMap,
        clock: ResponseClock,
        names: Names,
        period: Option<Duration>,
    ) -> Option<Self> {
        let [limit, remaining, reset] = names.map(|name| value::text(headers, name));
        let mut quota = Self {
            limit: limit.and_then(value::units),
            remaining: remaining.and_then(value::units),
            reset: reset.and_then(|text| value::reset(text, clock)),
            period: None,
        };
        quota.period = quota.refill().map(|(_, period)| period).or(period);
        (quota.limit.is_some() || quota.remaining.is_some()).then_some(quota)
    }

    /// Returns the units that come back in a period, if they come back one by one and not all at the reset: if the reset
    /// is as far as a bucket with a usual period takes to fill. A window ends at any time, whatever is left.
    pub(super) fn refill(&self) -> Option<(u64, Duration)> {
        let (limit, remaining, reset) = (self.limit?, self.remaining?, self.reset?);
        let used = limit.checked_sub(remaining).filter(|used| *used > 0)?;
        let fills_in = reset.as_nanos().checked_mul(u128::from(limit))? / u128::from(used);
        let periods = PERIODS.into_iter().map(Duration::from_secs);
        let mut fits = periods.filter(|period| {
            let nanos = period.as_nanos();
            fills_in.abs_diff(nanos) <= nanos / PERIOD_TOLERANCE
        });
        fits.next().map(|period| (limit, period))
    }
}

fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
        || status.as_u16() == OVERLOADED
}

fn delay(status: StatusCode, headers: &HeaderMap, body: &[u8], clock: ResponseClock) -> Option<Duration> {
    let text = |name: &str| value::text(headers, name);
    let millis = || text("retry-after-ms").or_else(|| text("x-ms-retry-after-ms")).and_then(value::millis);
    let after = || text("retry-after").and_then(|text| value::reset(text, clock));
    let of_body = || is_refusal(status).then(|| body::delay(body)).flatten();
    millis().or_else(after).or_else(of_body)
}
