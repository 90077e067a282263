//! The gateway: finds the tenant, counts the prompt, checks the limits, and relays the response of the model.

mod call;
mod relay;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use throttlekit_redis::RedisStore;
use throttlekit_telemetry::{Telemetry, prometheus};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::api::{APIS, Api};
use crate::ledger::Ledger;
use crate::metering::{Debit, Denial, Meter, Permit, TenantLimiter, Why};
use crate::refusal::Refusal;
use crate::tenants::{Bound, Config, Tenant};
use crate::upstream::{Trust, Unanswered, Upstream};
use call::Call;
use relay::{Relay, SILENCE_MAX};

/// No request is larger, pictures and all; it bounds what is counted of one, too.
const REQUEST_BYTES_MAX: usize = 8 << 20;
/// In which time it has to be there.
const REQUEST_WITHIN: Duration = Duration::from_secs(60);
/// No answer of a model in one piece is larger.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// For how long a caller may leave a chunk untaken before it counts as gone.
const TAKE_WITHIN: Duration = Duration::from_secs(60);

/// Headers of a response that are passed on.
const PASSED_ON: [HeaderName; 3] =
    [header::CONTENT_TYPE, HeaderName::from_static("request-id"), HeaderName::from_static("x-request-id")];
/// Headers of an error that are passed on, too.
const PASSED_ON_REFUSED: [HeaderName; 3] = [
    header::RETRY_AFTER,
    HeaderName::from_static("retry-after-ms"),
    HeaderName::from_static("x-should-retry"),
];

/// A key, as clients of Anthropic send it.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The gateway.
pub struct Gateway {
    keys: HashMap<String, Arc<Tenant>>,
    limiters: HashMap<String, TenantLimiter>,
    upstream: Upstream,
    ledger: Arc<Ledger>,
    telemetry: Arc<Telemetry>,
    max_tokens_default: u64,
    bound_by: Option<Bound>,
}

impl Gateway {
    /// Creates a gateway that counts together with all others of its policy on the store.
    pub fn new(
        config: &Config,
        trust: &Trust,
        meter: Meter,
        store: &RedisStore,
        policy: &str,
        region: &str,
    ) -> Result<Self> {
        let ledger = Arc::new(Ledger::new(config.window()));
        let telemetry = Arc::new(Telemetry::builder().start()?);
        let limiters = TenantLimiter::each(meter, store, policy, region, config, &ledger, &telemetry)?;
        Ok(Self {
            keys: config.by_key(),
            limiters,
            upstream: Upstream::new(&config.upstream, config.upstream_key.as_deref(), trust)?,
            ledger,
            telemetry,
            max_tokens_default: config.max_tokens_default,
            bound_by: config.bound_by,
        })
    }

    /// Returns the routes for callers.
    pub fn routes(self: &Arc<Self>) -> Router {
        let each = |router: Router<Arc<Self>>, api: &'static Api| {
            let handler = async move |State(gateway): State<Arc<Self>>, request: Request| {
                let response = answer(&gateway, api, request).await;
                response.unwrap_or_else(|refusal| refusal.into_response(api.family))
            };
            router.route(api.path, post(handler))
        };
        let apis = APIS.into_iter().fold(Router::new(), each);
        apis.route("/healthz", get(async || "ok")).with_state(self.clone())
    }

    /// Returns the routes for operators, which belong on a listener of their own.
    pub fn admin_routes(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/admin/stats", get(stats))
            .route("/admin/allowances", get(allowances))
            .route("/admin/slots", get(slots))
            .route("/metrics", get(metrics))
            .with_state(self.clone())
    }

    fn tenant(&self, headers: &HeaderMap) -> Result<&Arc<Tenant>, Refusal> {
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let bearer = text(&header::AUTHORIZATION).and_then(|shown| shown.strip_prefix("Bearer "));
        let key = bearer.or_else(|| text(&API_KEY)).ok_or(Refusal::Stranger)?;
        self.keys.get(key.trim()).ok_or(Refusal::Stranger)
    }
}

/// Returns the counts of this gateway.
async fn stats(State(gateway): State<Arc<Gateway>>) -> Response {
    Json(gateway.ledger.read()).into_response()
}

/// Returns what every tenant has left, by the store.
async fn allowances(State(gateway): State<Arc<Gateway>>) -> Response {
    let mut allowances = BTreeMap::new();
    for (tenant, limiter) in &gateway.limiters {
        allowances.insert(tenant, limiter.allowances().await);
    }
    Json(allowances).into_response()
}

/// Returns the requests in flight of every tenant, by the store; null where it does not respond.
async fn slots(State(gateway): State<Arc<Gateway>>) -> Response {
    let mut slots = BTreeMap::new();
    for (tenant, limiter) in &gateway.limiters {
        slots.insert(tenant, limiter.held().await.ok());
    }
    Json(slots).into_response()
}

/// Returns the decisions of policies, for Prometheus; a policy is a tenant.
async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    let text = prometheus::text(&gateway.telemetry.counts());
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response()
}

async fn answer(gateway: &Gateway, api: &'static Api, request: Request) -> Result<Response, Refusal> {
    let (head, body) = request.into_parts();
    // Nothing is read of a stranger's request.
    let tenant = gateway.tenant(&head.headers)?;
    let call = counted(api, body, gateway.max_tokens_default).await?;
    let answer = gateway.limiters[&tenant.name].admit(call.asked).await.map_err(|error| {
        eprintln!("{}: {error}", tenant.name);
        gateway.ledger.denied(&tenant.name, Why::Outage.label());
        Refusal::Denied(Denial::outage(&tenant.name))
    })?;
    let mut response = match answer.outcome {
        Ok(permit) => {
            gateway.ledger.admitted(&tenant.name);
            let sent = Sent::new(gateway, tenant, &call, permit);
            let forwarded = forward(gateway, call, sent, &head.headers, answer.may_use).await;
            forwarded.unwrap_or_else(|refusal| refusal.into_response(api.family))
        }
        Err(denial) => {
            gateway.ledger.denied(&tenant.name, denial.why.label());
            Refusal::Denied(denial).into_response(api.family)
        }
    };
    answer.allowances.write(api.family, response.headers_mut());
    Ok(response)
}

/// Reads a request and counts its prompt, which takes a while if it is long.
async fn counted(api: &'static Api, body: Body, max_tokens_default: u64) -> Result<Call, Refusal> {
    let body = requested(body).await?;
    let counts = spawn_blocking(move || Call::read(api, &body, max_tokens_default));
    counts
        .await
        .unwrap_or_else(|_| Err(Refusal::Malformed("The tokens of the prompt cannot be counted.".to_owned())))
}

async fn requested(body: Body) -> Result<Bytes, Refusal> {
    match timeout(REQUEST_WITHIN, Limited::new(body, REQUEST_BYTES_MAX).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::TooLarge(REQUEST_BYTES_MAX)),
        Ok(Err(error)) => Err(Refusal::Malformed(error.to_string())),
        Err(_) => Err(Refusal::TooSlow),
    }
}

/// A request on its way to the model, which counts its prompt: the model reads that, even if no client waits for the response. Dropped
/// before the answer is there, the caller went away, and has paid the prompt.
struct Sent {
    permit: Option<Permit>,
    prompt: u64,
    tenant: Arc<Tenant>,
    ledger: Arc<Ledger>,
}

impl Sent {
    fn new(gateway: &Gateway, tenant: &Arc<Tenant>, call: &Call, permit: Permit) -> Self {
        let (tenant, ledger) = (tenant.clone(), gateway.ledger.clone());
        Self { permit: Some(permit), prompt: call.asked.prompt, tenant, ledger }
    }

    /// Counts the prompt. It was set aside, so this asks nobody; but the slot may be lost by now.
    async fn count_prompt(&mut self) -> Result<(), Refusal> {
        let debit = match &mut self.permit {
            Some(permit) => permit.debit(self.prompt).await,
            None => Debit::Deny,
        };
        if debit == Debit::Allow {
            return Ok(());
        }
        self.refused();
        self.ledger.lost(&self.tenant.name);
        Err(Refusal::Denied(Denial::outage(&self.tenant.name)))
    }

    /// The model has not taken it: it costs no tokens.
    fn refused(&mut self) {
        if let Some(permit) = self.permit.take() {
            permit.refuse();
        }
    }

    /// Ends the response, whether it came or not; this number of tokens count as passed on.
    fn over(&mut self, tokens: u64) -> Option<Permit> {
        self.ledger.delivered(&self.tenant.name, tokens);
        self.permit.take()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if self.permit.is_some() {
            self.ledger.delivered(&self.tenant.name, self.prompt);
            self.ledger.gone(&self.tenant.name, self.prompt);
        }
    }
}

/// Asks the model. If it says no, that is passed on as it is, and costs no tokens.
async fn forward(
    gateway: &Gateway,
    mut call: Call,
    mut sent: Sent,
    headers: &HeaderMap,
    may_use: u64,
) -> Result<Response, Refusal> {
    let body = call
        .sent_on(may_use, gateway.bound_by, gateway.max_tokens_default)
        .inspect_err(|_| sent.refused())?;
    sent.count_prompt().await?;
    let (api, streams) = (call.request.api, call.request.streams);
    let (head, said) = match gateway.upstream.send(api, headers, body, streams).await {
        Ok(response) => response.into_parts(),
        Err(Unanswered::Unreached(error)) => {
            sent.refused();
            return Err(Refusal::Upstream(format!("{error:#}")));
        }
        Err(Unanswered::Broken(error)) => {
            sent.over(sent.prompt);
            return Err(Refusal::Upstream(format!("{error:#}")));
        }
    };
    let body = if !head.status.is_success() {
        sent.refused();
        Body::from(whole(said).await?)
    } else if let Some(streaming) = call.streaming() {
        streamed(Relay::begin(Body::new(said), &call, streaming, &mut sent))
    } else {
        let whole = whole(said).await.inspect_err(|_| drop(sent.over(sent.prompt)))?;
        let total = cost(&call, whole.clone()).await;
        if let Some(permit) = sent.over(total) {
            permit.finish(Some(total)).await;
        }
        Body::from(whole)
    };
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    let if_refused = PASSED_ON_REFUSED.into_iter().filter(|_| !head.status.is_success());
    let passed_on = PASSED_ON.into_iter().chain(if_refused);
    for name in passed_on {
        response.headers_mut().extend(head.headers.get(&name).cloned().map(|value| (name, value)));
    }
    Ok(response)
}

/// Reads from the model as the caller takes it. A separate task reads, so that a caller who takes nothing for too
/// long gives its slot back.
fn streamed(mut relay: Relay) -> Body {
    let (sends, mut receives) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let next = tokio::select! {
                biased;
                () = sends.closed() => return,
                next = relay.next() => next,
            };
            let Some(bytes) = next else { return };
            if !matches!(timeout(TAKE_WITHIN, sends.send(bytes)).await, Ok(Ok(()))) {
                return;
            }
        }
    });
    Body::from_stream(stream::poll_fn(move |context| receives.poll_recv(context)).map(Ok::<_, Infallible>))
}

/// An answer in one piece. The model may be slow, but not silent.
async fn whole(said: Incoming) -> Result<Bytes, Refusal> {
    let broken = |why: String| Refusal::Upstream(why);
    let (mut said, mut whole) = (Limited::new(said, ANSWER_BYTES_MAX), Vec::new());
    loop {
        match timeout(SILENCE_MAX, said.frame()).await {
            Ok(Some(Ok(frame))) => whole.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
            Ok(Some(Err(error))) => return Err(broken(error.to_string())),
            Ok(None) => return Ok(whole.into()),
            Err(_) => return Err(broken("no data within the timeout".to_owned())),
        }
    }
}

/// Returns the cost of a response: as the model reports, or by our own count.
async fn cost(call: &Call, answer: Bytes) -> u64 {
    let (api, counter, prompt) = (call.request.api, call.counter, call.asked.prompt);
    let counts = move || match reported(api, &answer) {
        Some(total) => total,
        None if !api.generates() => prompt,
        None => prompt + counter.text(&String::from_utf8_lossy(&answer)),
    };
    spawn_blocking(counts).await.unwrap_or(prompt)
}

fn reported(api: &Api, answer: &[u8]) -> Option<u64> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    api.usage.read(&answer["usage"]).map(|usage| usage.total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Family;
    use axum::http::StatusCode;

    #[tokio::test]
    async fn a_request_of_a_byte_too_many_is_refused_in_the_words_that_clients_know() {
        assert_eq!(
            requested(Body::from(vec![b' '; REQUEST_BYTES_MAX])).await.unwrap().len(),
            REQUEST_BYTES_MAX
        );
        let refusal = requested(Body::from(vec![b' '; REQUEST_BYTES_MAX + 1])).await.unwrap_err();
        let response = refusal.into_response(Family::OpenAi);
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["code"], "request_too_large");
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_takes_nothing_for_too_long_counts_as_gone() {
        use relay::tests::{chunk, relay};
        let relay = relay(stream::repeat_with(|| chunk(None)));
        let ledger = relay.ledger.clone();
        let gone = || ledger.read().tenants["x"].gone;
        let untaken = streamed(relay);
        tokio::time::sleep(TAKE_WITHIN / 2).await;
        assert_eq!(gone(), 0);
        tokio::time::sleep(TAKE_WITHIN).await;
        assert_eq!(gone(), 1);
        drop(untaken);
    }
}
