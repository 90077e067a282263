//! Responses to requests that do not reach the service.
//!
//! HTTP clients get a problem document (RFC 9457), gRPC clients a gRPC status. Both report how long to wait, or that
//! waiting is pointless.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use super::body::AdmitBody;
use super::grpc;
use super::headers::retry_secs;
use super::key::Missing;
use super::plan::Terms;
use crate::guard::Full;
use crate::{Decision, Retry};

/// Retry delay when no decision was possible: short, as the duration of a store's outage is unknown.
const UNDECIDED_WAIT: Duration = Duration::from_secs(1);
/// Retry delay for a slot that no clock gives back. `Retry-After` has nothing shorter.
const RELEASE_WAIT: Duration = Duration::from_secs(1);

const TYPE_DENIED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const TYPE_UNDECIDED: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// Reason for a refusal.
#[derive(Clone, Copy)]
pub(super) enum Refusal<'a> {
    Denied(&'a Terms, Decision),
    Full(Full),
    Missing(Missing),
    Undecided,
}

impl Refusal<'_> {
    /// Builds the response, in the protocol of the request's headers.
    pub(super) fn answer<B>(self, request: &HeaderMap) -> Response<AdmitBody<B>> {
        match grpc::content_type(request) {
            Some(content_type) => grpc::trailers_only(self, content_type),
            None => self.problem(),
        }
    }

    fn problem<B>(self) -> Response<AdmitBody<B>> {
        let mut response = Response::new(AdmitBody::refusal(self.document()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(wait) = self.wait() {
            headers.insert(RETRY_AFTER, retry_secs(wait).into());
        }
        response
    }

    /// Builds the problem document. For printable ASCII, the only input here, `{:?}` writes a JSON string.
    fn document(self) -> String {
        let (status, detail) = (self.status(), self.detail());
        let title = status.canonical_reason().unwrap_or_default();
        let (kind, rest) = match self {
            Self::Denied(terms, decision) => (TYPE_DENIED, denied_members(terms, &decision)),
            Self::Full(_) | Self::Undecided => (TYPE_UNDECIDED, String::new()),
            Self::Missing(_) => ("about:blank", String::new()),
        };
        let status = status.as_u16();
        format!(r#"{{"type":{kind:?},"title":{title:?},"status":{status},"detail":{detail:?}{rest}}}"#)
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Denied(..) => StatusCode::TOO_MANY_REQUESTS,
            Self::Missing(Missing::ByClient) => StatusCode::BAD_REQUEST,
            Self::Missing(Missing::ByServer) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Full(_) | Self::Undecided => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the time to wait before a retry; `None` if that would not help.
    pub(super) fn wait(self) -> Option<Duration> {
        match self {
            Self::Denied(_, decision) => match decision.retry_after {
                Retry::Now => Some(Duration::ZERO),
                Retry::After(wait) => Some(wait),
                Retry::OnRelease => Some(RELEASE_WAIT),
                Retry::Never => None,
            },
            Self::Full(_) => Some(RELEASE_WAIT),
            Self::Missing(_) => None,
            Self::Undecided => Some(UNDECIDED_WAIT),
        }
    }

    /// Formats the reason as text: printable ASCII, as plan names are.
    pub(super) fn detail(self) -> String {
        match self {
            Self::Denied(terms, decision) => denial(terms, &decision),
            Self::Full(Full { limit, in_flight }) => format!(
                "As many requests are being served as may be, {in_flight} of {limit}. One passes when another ends."
            ),
            Self::Missing(Missing::ByClient) => "The request lacks what it is counted by.".into(),
            Self::Missing(Missing::ByServer) => {
                "The server cannot tell who sent the request: its ClientIp finds no peer address.".into()
            }
            Self::Undecided => "Whether the request may pass could not be decided.".into(),
        }
    }
}

fn denied_members(terms: &Terms, decision: &Decision) -> String {
    let name = terms.name.as_str();
    let wait_ms = decision.retry_after.wait_ms().map_or("null".to_owned(), |millis| millis.to_string());
    format!(r#","violated-policies":[{name:?}],"retry_after_ms":{wait_ms}"#)
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
        Retry::Never => format!(
            "This request costs more than the {limit} units that '{name}' ever holds. Waiting does not help."
        ),
    }
}
