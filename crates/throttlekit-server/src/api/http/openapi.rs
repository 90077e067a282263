//! `/openapi.json`: every route and every document, generated from the types that read and write them.

use std::sync::LazyLock;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use super::admin_wire::{
    Configuration, FilesReloaded, GrantRequest, Granted, HeldLeases, LeasesReleased, ListLeasesRequest,
    ListOverridesRequest, ListPlansRequest, Nothing, OverrideSet, Overrides, Plans, ReleaseLeasesRequest,
    RemoveOverrideRequest, RemovePlanRequest, Removed, SetLogFilterRequest, SetOverrideRequest,
    SetPlanRequest,
};
use super::health::Health;
use super::problem::Problem;
use super::wire::{
    AdmitRequest, Admitted, CheckManyRequest, CheckRequest, DebitRequest, Decided, DecidedMany, Done,
    ForecastRequest, Forecasted, HeartbeatRequest, Lent, PeekRequest, ReleaseRequest, Renewed,
    ReserveRequest, ResetRequest,
};

/// The document as it is served. It does not change while a process runs.
static SERVED: LazyLock<Bytes> = LazyLock::new(|| document().to_string().into());

pub(super) async fn serve() -> Response {
    let mut response = Response::new(Body::from(SERVED.clone()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the OpenAPI 3.1 description of this API.
pub fn document() -> Value {
    let mut schemas = Schemas::new();
    let paths = json!({
        "/v1/check": schemas.ask::<CheckRequest, Decided>("Checks a request for one key, and charges it if allowed", true),
        "/v1/check_many": schemas.ask::<CheckManyRequest, DecidedMany>("Checks requests for many keys, each separately", false),
        "/v1/peek": schemas.ask::<PeekRequest, Decided>("Returns the state of a key, and charges nothing", true),
        "/v1/forecast": schemas.ask::<ForecastRequest, Forecasted>("Returns how much a key may spend now, and when more is replenished", false),
        "/v1/debit": schemas.ask::<DebitRequest, Decided>("Charges tokens to a budget", true),
        "/v1/admit": schemas.ask::<AdmitRequest, Admitted>("Decides on every axis; an admission is held under a lease", true),
        "/v1/release": schemas.ask::<ReleaseRequest, Done>("Releases an admission; idempotent", false),
        "/v1/heartbeat": schemas.ask::<HeartbeatRequest, Renewed>("Renews admissions while their work runs", false),
        "/v1/reserve": schemas.ask::<ReserveRequest, Lent>("Leases units of a rate, to spend locally", false),
        "/v1/admin/reset": schemas.ask::<ResetRequest, Done>("Forgets what a key has used; needs the endpoint `admin`", false),
        "/v1/admin/grant": schemas.ask::<GrantRequest, Granted>("Grants units once: the current use of a key is reduced by them", false),
        "/v1/admin/set_override": schemas.ask::<SetOverrideRequest, OverrideSet>("Sets other limits for a key or a prefix, on all servers of the store", false),
        "/v1/admin/remove_override": schemas.ask::<RemoveOverrideRequest, Removed>("Removes an override; idempotent", false),
        "/v1/admin/list_overrides": schemas.ask::<ListOverridesRequest, Overrides>("Lists overrides of a policy", false),
        "/v1/admin/set_plan": schemas.ask::<SetPlanRequest, Done>("Sets the limits of a plan; needs the endpoint `admin` for all keys of the policy", false),
        "/v1/admin/remove_plan": schemas.ask::<RemovePlanRequest, Removed>("Removes a plan that no override names; idempotent", false),
        "/v1/admin/list_plans": schemas.ask::<ListPlansRequest, Plans>("Lists the plans of a policy", false),
        "/v1/admin/list_leases": schemas.ask::<ListLeasesRequest, HeldLeases>("Lists leases that clients hold at this server", false),
        "/v1/admin/release_leases": schemas.ask::<ReleaseLeasesRequest, LeasesReleased>("Ends leases that clients hold at this server", false),
        "/v1/admin/drain": schemas.ask::<Nothing, Done>("Stops this server as SIGTERM does; needs the endpoint `admin` for all policies and keys", false),
        "/v1/admin/reload": schemas.ask::<Nothing, FilesReloaded>("Reads the policy file, tokens and certificates of this server again; needs `admin` for all policies and keys", false),
        "/v1/admin/set_log_filter": schemas.ask::<SetLogFilterRequest, Done>("Sets the log filter of this server until it ends; needs `admin` for all policies and keys", false),
        "/v1/admin/get_config": schemas.ask::<Nothing, Configuration>("Returns the configuration of this server without secrets; needs `admin` for all policies and keys", false),
        "/v1/forward-auth/{policy}": schemas.forward_auth(),
        "/healthz": schemas.look::<Health>("The process runs", false),
        "/readyz": schemas.look::<Health>("The store responds", true),
        "/openapi.json": { "get": { "summary": "This document", "responses": { "200": {
            "description": "OpenAPI 3.1", "content": { "application/json": { "schema": { "type": "object" } } },
        } } } },
    });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ThrottleKit",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Rate, concurrency and cost in one decision. Times are milliseconds since the Unix epoch, waits are milliseconds, both rounded up. Numbers above 2^53 - 1 are reported as 2^53 - 1.",
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": { "schemas": schemas.0.take_definitions(true) },
    })
}

/// Collects the schemas that are referred to.
struct Schemas(SchemaGenerator);

impl Schemas {
    fn new() -> Self {
        let settings = SchemaSettings::draft2020_12();
        Self(
            settings
                .with(|settings| settings.definitions_path = "/components/schemas".into())
                .into_generator(),
        )
    }

    fn of<T: JsonSchema>(&mut self) -> Value {
        json!({ "application/json": { "schema": self.0.subschema_for::<T>() } })
    }

    fn problem(&mut self) -> Value {
        let schema = self.0.subschema_for::<Problem>();
        let content = json!({ "application/problem+json": { "schema": schema } });
        json!({ "description": "Nothing was decided: the cause, and what to do next", "content": content })
    }

    /// Describes a POST of one document for another. For some the caller chooses the status of a denial.
    fn ask<I: JsonSchema, O: JsonSchema>(&mut self, summary: &str, denies: bool) -> Value {
        let (taken, given, problem) = (self.of::<I>(), self.of::<O>(), self.problem());
        let ok = if denies { "The decision: allowed or denied" } else { "The response" };
        let mut responses = json!({ "200": { "description": ok, "content": given }, "default": problem });
        let mut parameters = Vec::new();
        if denies {
            responses["429"] = json!({ "description": "Denied, with `status=429`", "content": given });
            let schema = json!({ "type": "integer", "enum": [200, 429], "default": 200 });
            parameters.push(parameter("status", "query", false, "Status of a denial", &schema));
        }
        json!({ "post": {
            "summary": summary,
            "parameters": parameters,
            "requestBody": { "required": true, "content": taken },
            "responses": responses,
        } })
    }

    fn look<O: JsonSchema>(&mut self, summary: &str, fails: bool) -> Value {
        let mut responses = json!({ "200": { "description": "OK", "content": self.of::<O>() } });
        if fails {
            responses["503"] = self.problem();
        }
        json!({ "get": { "summary": summary, "responses": responses } })
    }

    fn forward_auth(&mut self) -> Value {
        let (text, number) = (json!({ "type": "string" }), json!({ "type": "integer", "minimum": 1 }));
        let deny = json!({ "type": "integer", "enum": [403, 429], "default": 429 });
        let problem = self.problem();
        json!({ "get": {
            "summary": "Decides for a proxy; any method is accepted. Default key: the client's address",
            "parameters": [
                parameter("policy", "path", true, "Name of the policy", &text),
                parameter("key", "query", false, "Key to count by", &text),
                parameter("key_header", "query", false, "Header whose value is the key", &text),
                parameter("cost", "query", false, "Cost. Default: 1", &number),
                parameter("deny", "query", false, "Status of a denial. Default: 429", &deny),
            ],
            "responses": {
                "200": { "description": "Allowed" },
                "403": problem,
                "429": problem,
                "default": problem,
            },
        } })
    }
}

fn parameter(name: &str, place: &str, required: bool, description: &str, schema: &Value) -> Value {
    json!({ "name": name, "in": place, "required": required, "description": description, "schema": schema })
}
