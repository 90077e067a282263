//! Liveness and readiness of the server.

use axum::extract::State;
use http::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use super::HttpApi;
use super::body::json;
use super::problem::Problem;

/// Response of a healthy server.
#[derive(Serialize, JsonSchema)]
pub(super) struct Health {
    /// Always `ok`: anything else is a problem document.
    status: &'static str,
    /// Kind of the store: `memory`, `redis` or `postgres`.
    store: &'static str,
}

/// Liveness: the process runs. The store is part of readiness only: restarting the server does not fix the store.
pub(super) async fn alive(State(api): State<HttpApi>) -> Response<String> {
    json(StatusCode::OK, &api.health())
}

/// Readiness: the server is not about to stop, and the store responds or did within the last second, so that frequent
/// probes do not all reach the store.
pub(super) async fn ready(State(api): State<HttpApi>) -> Response<String> {
    if api.engine.is_draining() {
        let detail = "the server is shutting down: use another";
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).response();
    }
    if api.ready.get(api.engine.probe()).await {
        return json(StatusCode::OK, &api.health());
    }
    let detail = "the store is unavailable: policies use their `on_outage` fallback";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).response()
}

impl HttpApi {
    fn health(&self) -> Health {
        Health { status: "ok", store: self.engine.store_health().kind }
    }
}
