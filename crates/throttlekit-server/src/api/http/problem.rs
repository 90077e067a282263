//! Errors as problem documents (RFC 9457), each with the next step.

use axum::response::IntoResponse;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use throttlekit::store::StoreError;
use throttlekit_proto::STORE_OUTAGE;

use crate::engine::Refusal;

const TYPE_DOWN: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// Reason why there is no decision.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(in crate::api) struct Problem {
    /// Kind of the problem, as a URI; `about:blank` if the status says all.
    #[serde(rename = "type")]
    kind: String,
    /// Description of the status.
    title: String,
    /// The HTTP status.
    status: u16,
    /// Cause of the problem, and the next step.
    detail: String,
    /// `store_outage` if the store does not respond and the policy fails closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
}

impl Problem {
    pub(in crate::api) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let kind = if status == StatusCode::SERVICE_UNAVAILABLE { TYPE_DOWN } else { "about:blank" };
        let title = status.canonical_reason().unwrap_or_default().to_owned();
        Self { kind: kind.into(), title, status: status.as_u16(), detail: detail.into(), cause: None }
    }

    pub(in crate::api) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown path: /openapi.json lists all paths")
    }

    pub(super) fn wrong_method() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method not allowed: see /openapi.json; API requests are POST",
        )
    }

    fn may_pass_later(&self) -> bool {
        matches!(self.status, 429 | 503)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let why = refusal.to_string();
        match refusal {
            Refusal::UnknownPolicy(_) => Self::new(
                StatusCode::NOT_FOUND,
                format!("{why}: check the name, or load a policy file that has it"),
            ),
            Refusal::Unsupported(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, why),
            Refusal::Invalid(_) => Self::bad(why),
            Refusal::Forbidden(_) => Self::new(StatusCode::FORBIDDEN, why),
            Refusal::TooMany(_) => Self::new(StatusCode::TOO_MANY_REQUESTS, why),
            Refusal::Outage => {
                Self { cause: Some(STORE_OUTAGE), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, why) }
            }
            Refusal::Store(StoreError::Overloaded) => Self::new(StatusCode::SERVICE_UNAVAILABLE, why),
            Refusal::Store(error) if error.is_outage() => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{why}: retry later, or set `on_outage` of the policy"),
            ),
            Refusal::Store(StoreError::Misconfigured(_)) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("{why}: fix the configuration of the store"),
            ),
            Refusal::Store(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, why),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        self.response().into_response()
    }
}

impl Problem {
    /// Creates the response.
    pub(in crate::api) fn response(&self) -> Response<String> {
        let mut response = Response::new(serde_json::to_string(self).unwrap_or_default());
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.may_pass_later() {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
