//! The answer to a request that does not reach the service.
//!
//! HTTP clients get a problem document (RFC 9457), gRPC clients a response of trailers only: status 200, the
//! outcome in `grpc-status`. Both learn how long to wait, and that waiting is pointless where it is.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::body::AdmitBody;
use super::headers::retry_secs;
use super::key::Missing;
use super::plan::Terms;
use crate::{Decision, Retry};

/// When to come back after nothing could be decided: soon, as the outage of a store is short or long but unknown.
const UNDECIDED_WAIT: Duration = Duration::from_secs(1);
/// When to look again for a slot that no clock gives back. `Retry-After` knows nothing shorter.
const RELEASE_WAIT: Duration = Duration::from_secs(1);

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// Why a request is refused.
#[derive(Clone, Copy)]
pub(super) enum Refusal<'a> {
    Denied(&'a Terms, Decision),
    Missing(Missing),
    Undecided,
}

impl Refusal<'_> {
    /// The response, in the protocol that the request's headers speak.
    pub(super) fn answer<B>(self, request: &HeaderMap) -> Response<AdmitBody<B>> {
        match grpc_type(request) {
            Some(content_type) => self.trailers_only(content_type),
            None => self.problem(),
        }
    }

    fn problem<B>(self) -> Response<AdmitBody<B>> {
        let text = Value::Object(self.members()).to_string();
        let mut response = Response::new(AdmitBody::refusal(text));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(wait) = self.wait() {
            headers.insert(RETRY_AFTER, retry_secs(wait).into());
        }
        response
    }

    fn members(self) -> Map<String, Value> {
        let status = self.status();
        let mut members = Map::new();
        let mut put = |name: &str, value| members.insert(name.to_owned(), value);
        put("title", json!(status.canonical_reason()));
        put("status", json!(status.as_u16()));
        put("detail", json!(self.detail()));
        match self {
            Self::Denied(terms, decision) => {
                put("type", json!(QUOTA_EXCEEDED));
                put("violated-policies", json!([terms.name.as_str()]));
                put("retry_after_ms", json!(decision.retry_after.wait_ms()));
            }
            Self::Undecided => _ = put("type", json!(REDUCED_CAPACITY)),
            Self::Missing(_) => _ = put("type", json!("about:blank")),
        }
        members
    }

    fn trailers_only<B>(self, content_type: HeaderValue) -> Response<AdmitBody<B>> {
        let mut response = Response::new(AdmitBody::default());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert("grpc-status", self.grpc_status().into());
        headers.insert("grpc-message", grpc_message(&self.detail()));
        if let Some(pushback) = self.pushback_ms() {
            headers.insert("grpc-retry-pushback-ms", pushback.into());
        }
        response
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Denied(..) => StatusCode::TOO_MANY_REQUESTS,
            Self::Missing(Missing::ByClient) => StatusCode::BAD_REQUEST,
            Self::Missing(Missing::ByServer) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Undecided => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn grpc_status(self) -> u16 {
        match self {
            Self::Denied(..) => 8,                  // RESOURCE_EXHAUSTED
            Self::Missing(Missing::ByClient) => 3,  // INVALID_ARGUMENT
            Self::Missing(Missing::ByServer) => 13, // INTERNAL
            Self::Undecided => 14,                  // UNAVAILABLE
        }
    }

    /// How long to wait before trying again; `None` where that would not help.
    fn wait(self) -> Option<Duration> {
        match self {
            Self::Denied(_, decision) => match decision.retry_after {
                Retry::Now => Some(Duration::ZERO),
                Retry::After(wait) => Some(wait),
                Retry::OnRelease => Some(RELEASE_WAIT),
                Retry::Never => None,
            },
            Self::Missing(_) => None,
            Self::Undecided => Some(UNDECIDED_WAIT),
        }
    }

    /// The wait as gRPC's retry policy reads it: a negative one stops the retries.
    fn pushback_ms(self) -> Option<i64> {
        match self {
            Self::Denied(_, Decision { retry_after: Retry::OnRelease, .. }) => None,
            _ => Some(self.wait().map_or(-1, |wait| Retry::after(wait).wait_ms().map_or(-1, clamp))),
        }
    }

    fn detail(self) -> String {
        match self {
            Self::Denied(terms, decision) => denial(terms, &decision),
            Self::Missing(Missing::ByClient) => "The request lacks what it is counted by.".into(),
            Self::Missing(Missing::ByServer) => "The server cannot tell who sent the request.".into(),
            Self::Undecided => "Whether the request may pass could not be decided.".into(),
        }
    }
}

fn denial(terms: &Terms, decision: &Decision) -> String {
    let Decision { limit, remaining, .. } = decision;
    let name = &terms.name;
    let now =
        format!("The limit '{name}' has {remaining} of {limit} units left, fewer than this request costs.");
    match decision.retry_after {
        Retry::Now => now,
        Retry::After(wait) => format!("{now} It passes in {} s.", retry_secs(wait)),
        Retry::OnRelease => format!("{now} It passes when another request ends."),
        Retry::Never => {
            format!(
                "This request costs more than the {limit} units that '{name}' ever holds. Waiting does not help."
            )
        }
    }
}

/// The content type of the answer, if the request is gRPC or gRPC-Web.
fn grpc_type(request: &HeaderMap) -> Option<HeaderValue> {
    let sent = request.get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = sent.split([';', '+']).next()?.trim();
    ["application/grpc", "application/grpc-web", "application/grpc-web-text"]
        .into_iter()
        .find(|grpc| kind.eq_ignore_ascii_case(grpc))
        .map(HeaderValue::from_static)
}

/// Printable ASCII, with `%` escaped as the protocol wants. Details are ASCII, as plan names are.
fn grpc_message(detail: &str) -> HeaderValue {
    let escaped = detail.replace('%', "%25");
    HeaderValue::from_str(&escaped).expect("a detail is printable ASCII")
}

fn clamp(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}
