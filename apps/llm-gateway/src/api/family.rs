//! Conventions that the APIs of one provider share: keys and errors.

use axum::http::{HeaderName, StatusCode, header};
use serde_json::{Value, json};

/// A provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// OpenAI, and the many servers that are compatible with it.
    OpenAi,
    /// Anthropic.
    Anthropic,
}

static ANTHROPIC: [HeaderName; 2] =
    [HeaderName::from_static("anthropic-version"), HeaderName::from_static("anthropic-beta")];

/// An error to report.
#[derive(Clone, Debug)]
pub struct Problem {
    /// HTTP status.
    pub status: StatusCode,
    /// `type` of an OpenAI error. Anthropic's types follow from the status.
    pub kind: &'static str,
    /// `code` of an OpenAI error.
    pub code: &'static str,
    /// Text for a person.
    pub message: String,
}

impl Family {
    /// Returns the headers of a request that the upstream needs.
    pub fn forwarded(self) -> &'static [HeaderName] {
        match self {
            Self::OpenAi => &[],
            Self::Anthropic => &ANTHROPIC,
        }
    }

    /// Returns the header with the key of the upstream.
    pub fn authorization(self, key: &str) -> (HeaderName, String) {
        match self {
            Self::OpenAi => (header::AUTHORIZATION, format!("Bearer {key}")),
            Self::Anthropic => (HeaderName::from_static("x-api-key"), key.to_owned()),
        }
    }

    /// Returns the body of an error response.
    pub fn error_body(self, problem: &Problem) -> Value {
        let Problem { status, kind, code, message } = problem;
        match self {
            Self::OpenAi => {
                json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
            }
            Self::Anthropic => {
                json!({ "type": "error", "error": { "type": anthropic_type(*status), "message": message } })
            }
        }
    }
}

fn anthropic_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    }
}
