//! Answers that say no, in the words that clients of this API know.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use throttlekit::{Axis, Retry};

use crate::api::error_body;
use crate::gate::{Denial, Why};
use crate::headers::go_duration;

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// Which OpenAI's clients obey before they look at the status.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// When to come back where a release makes room: nobody knows when that is.
const ON_RELEASE: Duration = Duration::from_secs(1);

/// Why a request was not answered by the model.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// It shows no key that we know.
    Stranger,
    /// It is none that can be understood.
    Malformed(String),
    /// A limit said no.
    Denied(Denial),
    /// The model cannot be reached.
    Upstream(String),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let said = |status, kind, code, message: &str| {
            (status, Json(error_body(kind, code, message))).into_response()
        };
        match self {
            Self::Stranger => {
                let message = "Incorrect API key provided: send `Authorization: Bearer <key>` with a key of this gateway.";
                said(StatusCode::UNAUTHORIZED, "invalid_request_error", "invalid_api_key", message)
            }
            Self::Malformed(why) => {
                said(StatusCode::BAD_REQUEST, "invalid_request_error", "invalid_body", &why)
            }
            Self::Upstream(why) => said(
                StatusCode::BAD_GATEWAY,
                "server_error",
                "upstream_unreachable",
                &format!("The model: {why}"),
            ),
            Self::Denied(denial) => denied(&denial),
        }
    }
}

fn denied(denial: &Denial) -> Response {
    let (status, kind, code) = match denial.why {
        Why::Outage => (StatusCode::SERVICE_UNAVAILABLE, "server_error", "limits_unavailable"),
        Why::Axis(Axis::Rate) => (StatusCode::TOO_MANY_REQUESTS, "requests", "rate_limit_exceeded"),
        Why::Axis(Axis::Concurrency) => (StatusCode::TOO_MANY_REQUESTS, "concurrency", "rate_limit_exceeded"),
        Why::Axis(Axis::Cost | Axis::Fairness) => {
            (StatusCode::TOO_MANY_REQUESTS, "tokens", "rate_limit_exceeded")
        }
    };
    let mut response = (status, Json(error_body(kind, code, &message(denial)))).into_response();
    let headers = response.headers_mut();
    match wait(denial.retry) {
        Some(wait) => {
            let ms = wait.as_nanos().div_ceil(1_000_000).max(1) as u64;
            headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000)));
            headers.insert(RETRY_AFTER_MS, HeaderValue::from(ms));
        }
        None => {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
    }
    response
}

/// How long to wait; nothing if that would not help.
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
            return "The limits cannot be asked at the moment, so nothing is let in. Try again soon.".into();
        }
        Why::Axis(Axis::Concurrency) => {
            format!("{tenant} may have {limit} requests under way at a time (concurrency)")
        }
        Why::Axis(Axis::Rate) => format!("{tenant} may send {limit} requests a minute (RPM)"),
        Why::Axis(Axis::Cost) => {
            format!("{tenant} may use {limit} tokens a minute (TPM), and this asks for about {asked}")
        }
        Why::Axis(Axis::Fairness) => {
            format!(
                "The model is busy: {tenant} may use {limit} of its tokens beside the others (fair share), and this asks for about {asked}"
            )
        }
    };
    let advice = match (denial.retry, wait(denial.retry)) {
        (Retry::OnRelease, _) => "Try again when one of them has ended.".to_owned(),
        (_, Some(wait)) => format!("Please try again in {}.", go_duration(wait)),
        (_, None) => "It never fits: shorten the prompt or lower max_tokens.".to_owned(),
    };
    format!("{bound}. {advice}")
}
