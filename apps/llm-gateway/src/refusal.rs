//! Error responses of the gateway itself.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use throttlekit::{Axis, Retry};

use crate::api::{Family, Problem};
use crate::headers::go_duration;
use crate::metering::{Denial, Why};

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// Clients of OpenAI and Anthropic obey it before they look at the status.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Retry delay where a release frees a slot, at an unknown time.
const ON_RELEASE: Duration = Duration::from_secs(1);

const MINUTE: Duration = Duration::from_secs(60);

const UNKNOWN_KEY: &str = "Incorrect API key provided: send a key of this gateway as `Authorization: Bearer <key>` or `x-api-key: <key>`.";

/// A reason why the gateway did not pass on a response of the model.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// The key is missing or unknown.
    Stranger,
    /// The request is invalid.
    Malformed(String),
    /// A limit denied it.
    Denied(Denial),
    /// It is larger than this many bytes.
    TooLarge(usize),
    /// It did not arrive in time.
    TooSlow,
    /// The model cannot be reached.
    Upstream(String),
}

impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl Refusal {
    /// Returns the response, by the conventions of a provider.
    pub fn into_response(self, family: Family) -> Response {
        let problem = self.problem();
        let mut response = (problem.status, Json(family.error_body(&problem))).into_response();
        if let Self::Denied(denial) = &self {
            write_retry(denial.retry, response.headers_mut());
        }
        response
    }

    fn problem(&self) -> Problem {
        let invalid =
            |status, code, message: String| Problem { status, kind: "invalid_request_error", code, message };
        match self {
            Self::Stranger => invalid(StatusCode::UNAUTHORIZED, "invalid_api_key", UNKNOWN_KEY.to_owned()),
            Self::Malformed(why) => invalid(StatusCode::BAD_REQUEST, "invalid_body", why.clone()),
            Self::TooLarge(most) => invalid(
                StatusCode::PAYLOAD_TOO_LARGE,
                "request_too_large",
                format!("The request is larger than {most} bytes."),
            ),
            Self::TooSlow => invalid(
                StatusCode::REQUEST_TIMEOUT,
                "request_too_slow",
                "The request did not arrive in time.".to_owned(),
            ),
            Self::Upstream(why) => Problem {
                status: StatusCode::BAD_GATEWAY,
                kind: "server_error",
                code: "upstream_unreachable",
                message: format!("The upstream is unavailable: {why}"),
            },
            Self::Denied(denial) => denied(denial),
        }
    }
}

fn denied(denial: &Denial) -> Problem {
    let (status, kind, code) = match denial.why {
        Why::Outage => (StatusCode::SERVICE_UNAVAILABLE, "server_error", "limits_unavailable"),
        Why::Axis(Axis::Rate) => (StatusCode::TOO_MANY_REQUESTS, "requests", "rate_limit_exceeded"),
        Why::Axis(Axis::Concurrency) => (StatusCode::TOO_MANY_REQUESTS, "concurrency", "rate_limit_exceeded"),
        Why::Axis(_) => (StatusCode::TOO_MANY_REQUESTS, "tokens", "rate_limit_exceeded"),
    };
    Problem { status, kind, code, message: message(denial) }
}

/// Writes when to retry, or that no wait helps.
fn write_retry(retry: Retry, headers: &mut HeaderMap) {
    let Some(wait) = wait(retry) else {
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        return;
    };
    let ms = wait.as_nanos().div_ceil(1_000_000).max(1) as u64;
    headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000)));
    headers.insert(RETRY_AFTER_MS, HeaderValue::from(ms));
}

/// Returns the time to wait; `None` if that would not help.
fn wait(retry: Retry) -> Option<Duration> {
    match retry {
        Retry::OnRelease => Some(ON_RELEASE),
        Retry::Never => None,
        Retry::Now | Retry::After(_) => retry.wait(),
    }
}

/// Names what bound, and what to do.
fn message(denial: &Denial) -> String {
    let Denial { tenant, limit, asked, .. } = denial;
    let bound = match denial.why {
        Why::Outage => {
            return "Limits cannot be checked at the moment, so no request is admitted. Try again later."
                .into();
        }
        Why::Axis(Axis::Concurrency) => {
            format!("{tenant} may have at most {limit} requests in flight (concurrency)")
        }
        Why::Axis(Axis::Rate) => format!("{tenant} may send {limit} requests per minute (RPM)"),
        Why::Axis(Axis::Cost) => {
            let window = match denial.window {
                MINUTE => "per minute (TPM)".to_owned(),
                other => format!("in {}", go_duration(other)),
            };
            format!("{tenant} may use {limit} tokens {window}, and this request needs about {asked}")
        }
        Why::Axis(_) => {
            format!(
                "The model is busy: the fair share of {tenant} is {limit} tokens at the moment, and this \
                 request needs about {asked}"
            )
        }
    };
    let advice = match (denial.retry, wait(denial.retry)) {
        (Retry::OnRelease, _) => "Try again when one of them ends.".to_owned(),
        (_, Some(wait)) => format!("Please try again in {}.", go_duration(wait)),
        (_, None) => {
            "The request exceeds the limit: shorten the prompt or lower the output limit.".to_owned()
        }
    };
    format!("{bound}. {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_said_where_it_is_one() {
        let denied = |seconds| Denial {
            tenant: "acme".to_owned(),
            why: Why::Axis(Axis::Cost),
            limit: 100,
            asked: 20,
            window: Duration::from_secs(seconds),
            retry: Retry::Never,
        };
        assert!(message(&denied(60)).contains("100 tokens per minute (TPM)"));
        assert!(message(&denied(3_600)).contains("100 tokens in 1h0m0s"));
    }
}
