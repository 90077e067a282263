//! Responses to requests that do not reach the service.
//!
//! HTTP clients get a problem document (RFC 9457), gRPC clients a gRPC status. Both report how long to wait, or that
//! waiting is pointless.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use super::body::AdmissionBody;
use super::grpc;
use super::header_style::{jittered, retry_secs};
use super::key::MissingKey;
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
    /// The limit with this name denied.
    Denied(&'a str, Decision),
    /// No slot is free.
    Full(Decision),
    /// The value of the request is below its price.
    Priced,
    Missing(MissingKey),
    Undecided,
}

impl Refusal<'_> {
    /// Builds the response, in the protocol of the request's headers.
    ///
    /// `Retry-After` of a denial is at most this fraction later than the request passes.
    pub(super) fn answer<B>(self, request: &HeaderMap, jitter: f64) -> Response<AdmissionBody<B>> {
        match grpc::content_type(request) {
            Some(content_type) => grpc::trailers_only(self, content_type),
            None => self.problem(jitter),
        }
    }

    fn problem<B>(self, jitter: f64) -> Response<AdmissionBody<B>> {
        let mut response = Response::new(AdmissionBody::refusal(self.document()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(wait) = self.wait() {
            let jitter = if let Self::Denied(..) = self { jitter } else { 0.0 };
            headers.insert(RETRY_AFTER, jittered(retry_secs(wait), jitter).into());
        }
        response
    }

    /// Builds the problem document. For printable ASCII, the only input here, `{:?}` writes a JSON string.
    fn document(self) -> String {
        let (status, detail) = (self.status(), self.detail());
        let title = status.canonical_reason().unwrap_or_default();
        let (kind, rest) = match self {
            Self::Denied(name, decision) => (TYPE_DENIED, denied_members(name, &decision)),
            Self::Full(_) | Self::Priced | Self::Undecided => (TYPE_UNDECIDED, String::new()),
            Self::Missing(_) => ("about:blank", String::new()),
        };
        let status = status.as_u16();
        format!(r#"{{"type":{kind:?},"title":{title:?},"status":{status},"detail":{detail:?}{rest}}}"#)
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Denied(..) | Self::Priced => StatusCode::TOO_MANY_REQUESTS,
            Self::Missing(MissingKey::Client) => StatusCode::BAD_REQUEST,
            Self::Missing(MissingKey::Server) => StatusCode::INTERNAL_SERVER_ERROR,
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
            Self::Full(_) | Self::Priced => Some(RELEASE_WAIT),
            Self::Missing(_) => None,
            Self::Undecided => Some(UNDECIDED_WAIT),
        }
    }

    /// Formats the reason as text: printable ASCII, as plan names are.
    pub(super) fn detail(self) -> String {
        match self {
            Self::Denied(name, decision) => denial(name, &decision),
            Self::Full(Decision { limit, remaining, .. }) => format!(
                "The concurrency limit is reached: {} of {limit} requests are in flight. Retry when one of \
                 them ends.",
                limit.saturating_sub(remaining)
            ),
            Self::Priced => "The value of the request is below the current price.".into(),
            Self::Missing(MissingKey::Client) => {
                "The request has no key: the header or value to count by is missing.".into()
            }
            Self::Missing(MissingKey::Server) => {
                "The server cannot determine the client address: client_ip finds no peer address.".into()
            }
            Self::Undecided => "No admission decision was possible. Retry later.".into(),
        }
    }
}

fn denied_members(name: &str, decision: &Decision) -> String {
    let wait_ms = decision.retry_after.wait_ms().map_or("null".to_owned(), |millis| millis.to_string());
    format!(r#","violated-policies":[{name:?}],"retry_after_ms":{wait_ms}"#)
}

fn denial(name: &str, decision: &Decision) -> String {
    let Decision { limit, remaining, .. } = decision;
    let now =
        format!("The limit '{name}' has {remaining} of {limit} units left, fewer than this request costs.");
    match decision.retry_after {
        Retry::Now => now,
        Retry::After(wait) => format!("{now} Retry in {} s.", retry_secs(wait)),
        Retry::OnRelease => format!("{now} Retry when another request ends."),
        Retry::Never => format!(
            "This request costs more than the {limit} units of the limit '{name}'. Waiting does not help."
        ),
    }
}
