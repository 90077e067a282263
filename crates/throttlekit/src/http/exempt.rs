//! Requests that most services do not count.

use http::Method;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::request::Parts;

const HEALTH_PATHS: [&str; 7] =
    ["/health", "/healthz", "/livez", "/readyz", "/health/live", "/health/ready", "/ping"];

/// Returns whether a request is a CORS preflight or a health check, for
/// [`exempt`](super::AdmissionLayerBuilder::exempt).
///
/// A preflight is an `OPTIONS` with `Origin` and `Access-Control-Request-Method`. A health check is a `GET` or a `HEAD`
/// of `/health`, `/healthz`, `/livez`, `/readyz`, `/health/live`, `/health/ready` or `/ping`.
pub fn preflight_or_health(request: &Parts) -> bool {
    let headers = &request.headers;
    match request.method {
        Method::OPTIONS => {
            headers.contains_key(ORIGIN) && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
        }
        Method::GET | Method::HEAD => HEALTH_PATHS.contains(&request.uri.path()),
        _ => false,
    }
}
