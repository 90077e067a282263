//! Refusals for gRPC clients: trailers only, that is HTTP 200, no body, the outcome in `grpc-status`.

use http::Response;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};

use super::body::AdmissionBody;
use super::key::MissingKey;
use super::refusal::Refusal;
use crate::{Decision, Retry};

/// Returns the content type of the response, if the request is gRPC or gRPC-Web.
pub(super) fn content_type(request: &HeaderMap) -> Option<HeaderValue> {
    let sent = request.get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = sent.split([';', '+']).next()?.trim();
    ["application/grpc", "application/grpc-web", "application/grpc-web-text"]
        .into_iter()
        .find(|grpc| kind.eq_ignore_ascii_case(grpc))
        .map(HeaderValue::from_static)
}

pub(super) fn trailers_only<B>(
    refusal: Refusal<'_>,
    content_type: HeaderValue,
) -> Response<AdmissionBody<B>> {
    let mut response = Response::new(AdmissionBody::default());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert("grpc-status", status(refusal).into());
    headers.insert("grpc-message", message(&refusal.detail()));
    if let Some(pushback) = pushback_ms(refusal) {
        headers.insert("grpc-retry-pushback-ms", pushback.into());
    }
    response
}

fn status(refusal: Refusal<'_>) -> u16 {
    match refusal {
        // Full does not map to UNAVAILABLE: clients retry that at once.
        Refusal::Denied(..) | Refusal::Full(_) | Refusal::Priced => 8, // RESOURCE_EXHAUSTED
        Refusal::Missing(MissingKey::Client) => 3,                     // INVALID_ARGUMENT
        Refusal::Missing(MissingKey::Server) => 13,                    // INTERNAL
        Refusal::Undecided => 14,                                      // UNAVAILABLE
    }
}

/// Returns the wait for gRPC's retry policy: a negative one stops the retries, `None` leaves them to the client.
fn pushback_ms(refusal: Refusal<'_>) -> Option<i64> {
    if let Refusal::Full(_) | Refusal::Denied(_, Decision { retry_after: Retry::OnRelease, .. }) = refusal {
        return None;
    }
    let wait_ms = refusal.wait().and_then(|wait| Retry::after(wait).wait_ms());
    Some(wait_ms.map_or(-1, |millis| i64::try_from(millis).unwrap_or(i64::MAX)))
}

/// Encodes the message with `%` escaped, as the protocol requires.
fn message(detail: &str) -> HeaderValue {
    HeaderValue::from_str(&detail.replace('%', "%25")).expect("a detail is printable ASCII")
}
