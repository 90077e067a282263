//! The HTTP API: JSON for programs, and forward-auth for proxies.
//!
//! A denial is a response, so it is 200 with `allowed: false`, unless the caller requests 429. An error is a problem
//! document (RFC 9457) with the next step.

mod admin_routes;
mod admin_wire;
mod body;
mod cached;
mod fast_path;
pub(super) mod forward_auth;
mod health;
mod openapi;
mod problem;
mod routes;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::routing::{any, get, post};
use http::Method;
use throttlekit::http::ClientIp;

pub use body::BODY_BYTES_MAX;
pub(crate) use fast_path::CheckContext;
pub use openapi::document;

use super::admin::Operator;
use super::direct::Direct;
use crate::engine::Engine;
use cached::Cached;
pub(in crate::api) use problem::Problem;
use routes::CheckRoute;

/// The HTTP API of an engine.
#[derive(Clone)]
pub struct HttpApi {
    engine: Engine,
    operator: Operator,
    address: Arc<ClientIp>,
    ready: Arc<Cached>,
}

/// Creates the routes of an engine, for a server without a reverse proxy: no header is trusted for an address.
pub fn router(engine: Engine) -> Router {
    HttpApi::new(engine).into_router()
}

impl HttpApi {
    /// Creates the API of this engine.
    pub fn new(engine: Engine) -> Self {
        let operator = Operator::new(engine.clone());
        Self { engine, operator, address: Arc::new(forward_auth::address(0)), ready: Arc::default() }
    }

    /// Sets the operator whose actions it offers.
    pub(crate) fn operator(self, operator: Operator) -> Self {
        Self { operator, ..self }
    }

    /// Sets the number of proxies between clients and this server, including the one that sends the request.
    /// Forward-auth then takes the client's address from `X-Forwarded-For`, that many entries from the right and no
    /// further.
    pub fn trusted_hops(self, hops: u8) -> Self {
        Self { address: Arc::new(forward_auth::address(hops)), ..self }
    }

    /// Returns the routes of liveness and readiness only, for a separate listener.
    pub fn into_health(self) -> Router {
        Router::new()
            .route("/healthz", get(health::alive))
            .route("/readyz", get(health::ready))
            .with_state(self)
    }

    /// Returns all routes as a service that finds checks without the router.
    pub(crate) fn into_service(self) -> Direct<CheckRoute, Router> {
        let takes = |method: &Method, path: &str| path == "/v1/check" && method == Method::POST;
        Direct::new(takes, CheckRoute(self.clone()), self.into_router())
    }

    /// Returns all routes.
    pub fn into_router(self) -> Router {
        Router::new()
            .route("/v1/check", post(routes::check))
            .route("/v1/check_many", post(routes::check_many))
            .route("/v1/peek", post(routes::peek))
            .route("/v1/forecast", post(routes::forecast))
            .route("/v1/debit", post(routes::debit))
            .route("/v1/admit", post(routes::admit))
            .route("/v1/release", post(routes::release))
            .route("/v1/heartbeat", post(routes::heartbeat))
            .route("/v1/reserve", post(routes::reserve))
            .merge(admin_routes::routes())
            .route("/v1/forward-auth/{policy}", any(forward_auth::auth))
            .route("/healthz", get(health::alive))
            .route("/readyz", get(health::ready))
            .route("/openapi.json", get(openapi::serve))
            .fallback(async || Problem::not_found())
            .method_not_allowed_fallback(async || Problem::wrong_method())
            .with_state(self)
    }
}
