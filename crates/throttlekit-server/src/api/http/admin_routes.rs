//! The JSON routes for operators.

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use http::StatusCode;
use throttlekit_proto::v1;

use super::HttpApi;
use super::admin_wire::{
    Configuration, FilesReloaded, GrantRequest, Granted, HeldLeases, LeasesReleased, ListLeasesRequest,
    ListOverridesRequest, ListPlansRequest, Nothing, OverrideSet, Overrides, Plans, ReleaseLeasesRequest,
    RemoveOverrideRequest, RemovePlanRequest, Removed, SetLogFilterRequest, SetOverrideRequest,
    SetPlanRequest,
};
use super::body::{Asked, json};
use super::problem::Problem;
use super::wire::{Done, ResetRequest};

/// Creates the handler of an action: a document in, a message to the operator, a document out.
macro_rules! action {
    ($request:ty => $response:ty, |$operator:ident, $caller:ident, $body:ident| $action:expr) => {
        post(async |State(api): State<HttpApi>, asked: Asked<$request>| {
            let Asked { caller: $caller, body: $body, .. } = asked;
            let ($operator, $caller) = (&api.operator, &$caller);
            let response: $response = $action.map_err(Problem::from)?.into();
            Ok::<_, Problem>(json(StatusCode::OK, &response))
        })
    };
}

/// Returns the routes for operators.
pub(super) fn routes() -> Router<HttpApi> {
    Router::new()
        .route(
            "/v1/admin/reset",
            action!(ResetRequest => Done, |operator, caller, body| {
                let ResetRequest { policy, key, keys } = body;
                operator.reset(caller, v1::ResetRequest { policy, key, keys }).await.map(|_| Done {})
            }),
        )
        .route(
            "/v1/admin/grant",
            action!(GrantRequest => Granted, |operator, caller, body| {
                operator.grant(caller, body.into()).await
            }),
        )
        .route(
            "/v1/admin/set_override",
            action!(SetOverrideRequest => OverrideSet, |operator, caller, body| {
                operator.set_override(caller, body.into()).await
            }),
        )
        .route(
            "/v1/admin/remove_override",
            action!(RemoveOverrideRequest => Removed, |operator, caller, body| {
                operator.remove_override(caller, body.into()).await
            }),
        )
        .route(
            "/v1/admin/list_overrides",
            action!(ListOverridesRequest => Overrides, |operator, caller, body| {
                operator.list_overrides(caller, &body.into())
            }),
        )
        .route(
            "/v1/admin/set_plan",
            action!(SetPlanRequest => Done, |operator, caller, body| {
                operator.set_plan(caller, body.into()).await.map(|_| Done {})
            }),
        )
        .route(
            "/v1/admin/remove_plan",
            action!(RemovePlanRequest => Removed, |operator, caller, body| {
                operator.remove_plan(caller, body.into()).await
            }),
        )
        .route(
            "/v1/admin/list_plans",
            action!(ListPlansRequest => Plans, |operator, caller, body| {
                operator.list_plans(caller, &body.into())
            }),
        )
        .merge(server_routes())
}

/// Returns the routes for one server, its leases and its configuration.
fn server_routes() -> Router<HttpApi> {
    Router::new()
        .route(
            "/v1/admin/list_leases",
            action!(ListLeasesRequest => HeldLeases, |operator, caller, body| {
                operator.list_leases(caller, body.into()).await
            }),
        )
        .route(
            "/v1/admin/release_leases",
            action!(ReleaseLeasesRequest => LeasesReleased, |operator, caller, body| {
                operator.release_leases(caller, body.into()).await
            }),
        )
        .route(
            "/v1/admin/drain",
            action!(Nothing => Done, |operator, caller, _body| operator.drain(caller).map(|_| Done {})),
        )
        .route(
            "/v1/admin/reload",
            action!(Nothing => FilesReloaded, |operator, caller, _body| operator.reload(caller).await),
        )
        .route(
            "/v1/admin/set_log_filter",
            action!(SetLogFilterRequest => Done, |operator, caller, body| {
                operator.set_log_filter(caller, &body.into()).map(|_| Done {})
            }),
        )
        .route(
            "/v1/admin/get_config",
            action!(Nothing => Configuration, |operator, caller, _body| {
                operator.configuration(caller).map(|config| Configuration { config })
            }),
        )
}
