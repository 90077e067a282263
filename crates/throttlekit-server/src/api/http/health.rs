//! Liveness and readiness of the server.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::HttpApi;
use super::body::json;
use super::problem::Problem;

/// The server answers.
#[derive(Serialize, JsonSchema)]
pub(super) struct Health {
    /// Always `ok`: anything else is a problem document.
    status: &'static str,
    /// Where counts are kept: `memory`, `redis` or `postgres`.
    store: &'static str,
}

/// The process runs. Whether its store does is for `ready`: restarting a server does not mend its store.
pub(super) async fn alive(State(api): State<HttpApi>) -> Response {
    json(StatusCode::OK, &api.health())
}

/// The server is not about to stop, and the store answers, or did within the last second: whoever asks often does not
/// ask it as often.
pub(super) async fn ready(State(api): State<HttpApi>) -> Response {
    if api.engine.is_draining() {
        let detail = "the server is about to stop: use another";
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response();
    }
    if api.ready.get(api.engine.probe()).await {
        return json(StatusCode::OK, &api.health());
    }
    let detail = "the store does not answer: policies go by their `on_outage` until it does";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response()
}

impl HttpApi {
    fn health(&self) -> Health {
        Health { status: "ok", store: self.engine.store_health().kind }
    }
}
