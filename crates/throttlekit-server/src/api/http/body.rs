//! JSON requests and responses, with strict parsing.

use axum::BoxError;
use axum::extract::{FromRequest, Query, Request};
use http::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use throttlekit::Retry;

use super::HttpApi;
use super::problem::Problem;
use crate::access::Caller;
use crate::api::fair_use::Whole;
use crate::engine::Answered;

/// Maximum size of a request, in bytes.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// A parsed request: its caller, its content, and the status of a denial.
pub(super) struct Asked<T> {
    pub(super) caller: Caller,
    pub(super) body: T,
    denied: StatusCode,
}

/// Query parameters for the status of a denial.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[serde(default)]
    status: Option<u16>,
}

impl<T: DeserializeOwned> FromRequest<HttpApi> for Asked<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &HttpApi) -> Result<Self, Problem> {
        Self::read(request, api).await
    }
}

impl<T: DeserializeOwned> Asked<T> {
    /// Parses the body of a request whose denials have this status.
    pub(super) fn parse(caller: Caller, denied: StatusCode, body: &[u8]) -> Result<Self, Problem> {
        let body = serde_json::from_slice(body).map_err(|error| {
            Problem::bad(format!("invalid request: {error}; see the schema in /openapi.json"))
        })?;
        Ok(Self { caller, body, denied })
    }

    /// Reads and parses a request.
    pub(super) async fn read<B>(request: http::Request<B>, api: &HttpApi) -> Result<Self, Problem>
    where
        B: hyper::body::Body<Error: Into<BoxError>>,
    {
        let (parts, body) = request.into_parts();
        let asked = Head::of(&parts, api)?;
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("request body too large: at most {BODY_BYTES_MAX} bytes, send several requests"),
            ),
            None => Problem::bad("request body incomplete: send it again"),
        })?;
        asked.with(&body.to_bytes())
    }

    /// Reads a request whose body has arrived.
    pub(super) async fn read_whole(request: http::Request<Whole>, api: &HttpApi) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        match body.bytes().filter(|bytes| bytes.len() <= BODY_BYTES_MAX) {
            Some(bytes) => Head::of(&parts, api)?.with(bytes),
            None => Self::read(http::Request::from_parts(parts, body), api).await,
        }
    }
}

/// A request without its body.
struct Head {
    caller: Caller,
    denied: StatusCode,
}

impl Head {
    fn of(parts: &http::request::Parts, api: &HttpApi) -> Result<Self, Problem> {
        let denied = denied_as(&parts.uri)?;
        is_json(&parts.headers)?;
        Ok(Self { caller: Caller::of(&parts.extensions, &api.engine), denied })
    }

    fn with<T: DeserializeOwned>(self, body: &[u8]) -> Result<Asked<T>, Problem> {
        Asked::parse(self.caller, self.denied, body)
    }
}

fn denied_as(uri: &http::Uri) -> Result<StatusCode, Problem> {
    if uri.query().is_none() {
        return Ok(StatusCode::OK);
    }
    let wrong =
        || Problem::bad("invalid query: expected `status=200` or `status=429`, the status of a denial");
    let Query(options) = Query::<Options>::try_from_uri(uri).map_err(|_| wrong())?;
    match options.status {
        None | Some(200) => Ok(StatusCode::OK),
        Some(429) => Ok(StatusCode::TOO_MANY_REQUESTS),
        Some(_) => Err(wrong()),
    }
}

/// Checks the content type. A page in a browser can send other types to any origin without a preflight.
fn is_json(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.get(CONTENT_TYPE).is_some_and(|kind| names_json(kind.as_bytes())) {
        return Ok(());
    }
    let detail = "unsupported content type: send JSON with the header `content-type: application/json`";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
}

/// Checks whether a content type is that of JSON.
pub(super) fn names_json(kind: &[u8]) -> bool {
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

impl<T> Asked<T> {
    /// Creates the response, with the status of a denial if it is one.
    pub(super) fn answer(&self, answer: &Answered, body: &impl Serialize) -> Response<String> {
        let denied = !answer.decision.allowed;
        let mut response = json(if denied { self.denied } else { StatusCode::OK }, body);
        if denied && answer.decision.retry_after != Retry::Never {
            let wait = answer.decision.retry_after.wait_ms().unwrap_or(0).div_ceil(1_000).max(1);
            response.headers_mut().insert(RETRY_AFTER, wait.into());
        }
        response
    }
}

/// Creates a JSON response.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response<String> {
    // It has no maps whose keys are not text, and a string grows: writing does not fail.
    let mut response = Response::new(serde_json::to_string(body).unwrap_or_default());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
