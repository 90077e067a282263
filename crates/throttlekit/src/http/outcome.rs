//! The outcome of work, from its response.

use http::{HeaderMap, StatusCode};

use crate::admit::Ending;

/// Header with the outcome of a gRPC call, whose HTTP status is 200.
pub(crate) const GRPC_STATUS: &str = "grpc-status";

/// Classifies a response: 429, 503 and 504 are dropped; 2xx and 3xx are successes; all else is ignored. The status of a
/// gRPC call takes precedence.
pub(crate) fn ending_of(status: StatusCode, headers: &HeaderMap) -> Ending {
    if let Some(status) = headers.get(GRPC_STATUS) {
        return match status.as_bytes() {
            b"0" => Ending::Success,
            b"4" | b"8" | b"14" => Ending::Dropped, // DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE
            _ => Ending::Ignored,
        };
    }
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Ending::Dropped
        }
        status if status.is_success() || status.is_redirection() => Ending::Success,
        _ => Ending::Ignored,
    }
}
