//! The gateway: finds the tenant, counts the prompt, asks the gate, and passes on what the model says.

mod relay;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Map, Value};
use throttlekit_redis::RedisStore;
use throttlekit_telemetry::{Telemetry, prometheus};

use crate::api::{ChatRequest, Usage};
use crate::gate::{Asked, Denial, Gate, Meter, Permit, Why};
use crate::ledger::Ledger;
use crate::refusal::Refusal;
use crate::tenants::{Config, Tenant};
use crate::tokens::Counter;
use crate::upstream::Upstream;
use relay::Relay;

/// No answer of a model in one piece is larger.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// All that the gateway needs to answer.
pub struct Gateway {
    keys: HashMap<String, Arc<Tenant>>,
    gates: HashMap<String, Gate>,
    upstream: Upstream,
    ledger: Arc<Ledger>,
    telemetry: Arc<Telemetry>,
    max_tokens_default: u64,
}

impl Gateway {
    /// A gateway that counts together with all others of its policy on the store.
    pub fn new(
        config: &Config,
        meter: Meter,
        store: &RedisStore,
        policy: &str,
        region: &str,
    ) -> Result<Self> {
        let ledger = Arc::new(Ledger::new(config.window()));
        let telemetry = Arc::new(Telemetry::builder().start()?);
        let gates = Gate::each(meter, store, policy, region, config, &ledger, &telemetry)?;
        Ok(Self {
            keys: config.by_key(),
            gates,
            upstream: Upstream::new(&config.upstream, config.upstream_key.as_deref()),
            ledger,
            telemetry,
            max_tokens_default: config.max_tokens_default,
        })
    }

    /// Its routes. Serve them with the peers' addresses: the books are shown to this machine only.
    pub fn routes(self) -> Router {
        Router::new()
            .route("/v1/chat/completions", post(complete))
            .route("/admin/stats", get(stats))
            .route("/admin/rooms", get(rooms))
            .route("/metrics", get(metrics))
            .route("/healthz", get(async || "ok"))
            .with_state(Arc::new(self))
    }

    fn tenant(&self, headers: &HeaderMap) -> Result<&Arc<Tenant>, Refusal> {
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let key = shown.and_then(|shown| shown.strip_prefix("Bearer ")).ok_or(Refusal::Stranger)?;
        self.keys.get(key.trim()).ok_or(Refusal::Stranger)
    }
}

/// What this gateway has done, by its own books.
async fn stats(State(gateway): State<Arc<Gateway>>, ConnectInfo(peer): ConnectInfo<SocketAddr>) -> Response {
    for_us_only(peer, Json(gateway.ledger.read()))
}

/// What every tenant has left, by the store.
async fn rooms(State(gateway): State<Arc<Gateway>>, ConnectInfo(peer): ConnectInfo<SocketAddr>) -> Response {
    let mut rooms = BTreeMap::new();
    for (tenant, gate) in &gateway.gates {
        rooms.insert(tenant, gate.rooms().await);
    }
    for_us_only(peer, Json(rooms))
}

/// What policies decided, for Prometheus; a policy is a tenant.
async fn metrics(
    State(gateway): State<Arc<Gateway>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
) -> Response {
    let text = prometheus::text(&gateway.telemetry.counts());
    for_us_only(peer, ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text))
}

fn for_us_only(peer: SocketAddr, answer: impl IntoResponse) -> Response {
    if peer.ip().is_loopback() { answer.into_response() } else { StatusCode::NOT_FOUND.into_response() }
}

async fn complete(State(gateway): State<Arc<Gateway>>, headers: HeaderMap, body: Bytes) -> Response {
    answer(&gateway, &headers, &body).await.unwrap_or_else(IntoResponse::into_response)
}

async fn answer(gateway: &Gateway, headers: &HeaderMap, body: &[u8]) -> Result<Response, Refusal> {
    let tenant = gateway.tenant(headers)?;
    let call = Call::read(body, gateway.max_tokens_default)?;
    let answer = gateway.gates[&tenant.name].admit(call.asked).await.map_err(|error| {
        eprintln!("{}: {error}", tenant.name);
        gateway.ledger.denied(&tenant.name, Why::Outage.label());
        Refusal::Denied(Denial::outage(&tenant.name))
    })?;
    let mut response = match answer.outcome {
        Ok(permit) => {
            gateway.ledger.admitted(&tenant.name);
            forward(gateway, tenant, call, permit).await.unwrap_or_else(IntoResponse::into_response)
        }
        Err(denial) => {
            gateway.ledger.denied(&tenant.name, denial.why.label());
            Refusal::Denied(denial).into_response()
        }
    };
    answer.rooms.write(response.headers_mut());
    Ok(response)
}

/// A request as it is metered and sent on.
struct Call {
    request: ChatRequest,
    counter: Counter,
    asked: Asked,
    body: String,
}

impl Call {
    /// Sent on is what came, but for two things that metering needs: a limit to what is generated, and the model's own
    /// count at the end of a stream.
    fn read(body: &[u8], max_tokens_default: u64) -> Result<Self, Refusal> {
        let malformed = |error: serde_json::Error| Refusal::Malformed(error.to_string());
        let mut sent: Map<String, Value> = serde_json::from_slice(body).map_err(malformed)?;
        let request: ChatRequest = serde_json::from_value(Value::Object(sent.clone())).map_err(malformed)?;
        let max_each = request.max_each().unwrap_or(max_tokens_default);
        if request.max_each().is_none() {
            sent.insert("max_tokens".into(), max_each.into());
        }
        if request.stream {
            let options = sent.get("stream_options").and_then(Value::as_object);
            let mut options = options.cloned().unwrap_or_default();
            options.insert("include_usage".into(), true.into());
            sent.insert("stream_options".into(), options.into());
        }
        let counter = Counter::of(&request.model);
        let asked =
            Asked { prompt: counter.prompt(&request), most: max_each.saturating_mul(request.choices()) };
        Ok(Self { request, counter, asked, body: Value::Object(sent).to_string() })
    }
}

/// Asks the model. If it says no, that is passed on as it is, and costs no tokens: the permit is dropped.
async fn forward(
    gateway: &Gateway,
    tenant: &Arc<Tenant>,
    call: Call,
    permit: Permit,
) -> Result<Response, Refusal> {
    let Call { request, counter, asked, body } = call;
    let unreachable = |error: anyhow::Error| Refusal::Upstream(format!("{error:#}"));
    let (head, said) = gateway.upstream.complete(body).await.map_err(unreachable)?.into_parts();
    let content_type = head.headers.get(header::CONTENT_TYPE).cloned();
    let body = if !head.status.is_success() {
        Body::new(said)
    } else if request.stream {
        let ledger = gateway.ledger.clone();
        let relay =
            Relay::begin(said, permit, counter, asked.prompt, request.wants_usage(), tenant, ledger).await;
        Body::from_stream(stream::unfold(relay, async |mut relay| {
            Some((Ok::<_, Infallible>(relay.next().await?), relay))
        }))
    } else {
        let whole = whole(said).await?;
        let usage = reported(&whole);
        let counted = || asked.prompt + counter.text(&String::from_utf8_lossy(&whole));
        let total = usage.map_or_else(counted, |usage| usage.total_tokens);
        gateway.ledger.delivered(&tenant.name, total);
        permit.finish(Some(total)).await;
        Body::from(whole)
    };
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    response.headers_mut().extend(content_type.map(|kind| (header::CONTENT_TYPE, kind)));
    Ok(response)
}

async fn whole(said: Incoming) -> Result<Bytes, Refusal> {
    let collected = Limited::new(said, ANSWER_BYTES_MAX).collect().await;
    collected.map(http_body_util::Collected::to_bytes).map_err(|error| Refusal::Upstream(error.to_string()))
}

/// What the model says that its answer cost.
fn reported(answer: &[u8]) -> Option<Usage> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    serde_json::from_value(answer.get("usage")?.clone()).ok()
}
