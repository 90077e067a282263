//! Whether the server is there, and whether it can decide.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::HttpDoor;
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
pub(super) async fn alive(State(door): State<HttpDoor>) -> Response {
    json(StatusCode::OK, &door.health())
}

/// The server is not about to stop, and the store answers, or did within the last second: whoever asks often does not
/// ask it as often.
pub(super) async fn ready(State(door): State<HttpDoor>) -> Response {
    if door.engine.is_draining() {
        let detail = "the server is about to stop: use another";
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response();
    }
    if door.ready.get(door.engine.probe()).await {
        return json(StatusCode::OK, &door.health());
    }
    let detail = "the store does not answer: policies go by their `on_outage` until it does";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response()
}

impl HttpDoor {
    fn health(&self) -> Health {
        Health { status: "ok", store: self.engine.store_health().kind }
    }
}
