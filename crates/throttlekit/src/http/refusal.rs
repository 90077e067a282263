//! The answer to a request that does not reach the service.
//!
//! HTTP clients get a problem document (RFC 9457), gRPC clients what they read. Both learn how long to wait, and
//! that waiting is pointless where it is.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::body::AdmitBody;
use super::grpc;
use super::headers::retry_secs;
use super::key::Missing;
use super::plan::Terms;
use crate::{Decision, Retry};

/// When to come back after nothing could be decided: soon, as the outage of a store is short or long but unknown.
const UNDECIDED_WAIT: Duration = Duration::from_secs(1);
/// When to look again for a slot that no clock gives back. `Retry-After` knows nothing shorter.
const RELEASE_WAIT: Duration = Duration::from_secs(1);

const TYPE_DENIED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const TYPE_UNDECIDED: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

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
        match grpc::content_type(request) {
            Some(content_type) => grpc::trailers_only(self, content_type),
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
                put("type", json!(TYPE_DENIED));
                put("violated-policies", json!([terms.name.as_str()]));
                put("retry_after_ms", json!(decision.retry_after.wait_ms()));
            }
            Self::Undecided => _ = put("type", json!(TYPE_UNDECIDED)),
            Self::Missing(_) => _ = put("type", json!("about:blank")),
        }
        members
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Denied(..) => StatusCode::TOO_MANY_REQUESTS,
            Self::Missing(Missing::ByClient) => StatusCode::BAD_REQUEST,
            Self::Missing(Missing::ByServer) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Undecided => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// How long to wait before trying again; `None` where that would not help.
    pub(super) fn wait(self) -> Option<Duration> {
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

    /// The same in words: printable ASCII, as plan names are.
    pub(super) fn detail(self) -> String {
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
