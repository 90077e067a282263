//! A span for each RPC, with its decision.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response, StatusCode};
use opentelemetry::KeyValue;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Span, SpanKind, Status, Tracer};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracer;
use throttlekit::Axis;
use throttlekit::admit::LimitName;
use throttlekit::observe::Event;
use throttlekit_telemetry::Attributes;
use tower::{Layer, Service};

tokio::task_local! {
    /// Decision of the RPC that this task serves.
    static DECIDED: RefCell<Option<Decided>>;
}

/// Attributes of a decision in a span. Its key is left out.
struct Decided {
    policy: String,
    allowed: bool,
    axis: Option<&'static str>,
    limit_name: Option<LimitName>,
    guarantee: &'static str,
}

/// Records a decision, on the task that requested it. Of several, the first denial counts, or else the last.
pub(crate) fn note(event: &Event<'_>) {
    // Outside of an RPC there is no span to record it in.
    let _ = DECIDED.try_with(|decided| {
        let mut decided = decided.borrow_mut();
        if decided.as_ref().is_none_or(|before| before.allowed) {
            *decided = Some(Decided {
                policy: event.policy.to_owned(),
                allowed: event.decision.allowed,
                axis: event.denied_by.filter(|axis| *axis != Axis::Price).map(Axis::label),
                limit_name: event.limit_name,
                guarantee: event.guarantee.label(),
            });
        }
    });
}

impl Decided {
    fn attributes(self) -> impl Iterator<Item = KeyValue> {
        let axis = self.axis.filter(|_| !self.allowed);
        let limit_name = self.limit_name.filter(|_| !self.allowed);
        [
            Some(KeyValue::new(Attributes::ALLOWED, self.allowed)),
            Some(KeyValue::new(Attributes::POLICY, self.policy)),
            Some(KeyValue::new(Attributes::GUARANTEE, self.guarantee)),
            axis.map(|axis| KeyValue::new(Attributes::BINDING_AXIS, axis)),
            limit_name.map(|name| KeyValue::new(Attributes::LIMIT_NAME, name.as_str())),
        ]
        .into_iter()
        .flatten()
    }
}

/// Creates a span for each RPC, as a child of the caller's if it sent a `traceparent`.
#[derive(Clone)]
pub struct RpcSpans {
    tracer: SdkTracer,
}

impl RpcSpans {
    pub(super) fn new(tracer: SdkTracer) -> Self {
        Self { tracer }
    }

    fn start<B>(&self, request: &Request<B>) -> impl Span + Send + 'static {
        let path = request.uri().path();
        let name = http_route(path).unwrap_or_else(|| path.trim_start_matches('/')).to_owned();
        let builder = self.tracer.span_builder(name).with_kind(SpanKind::Server);
        let caller = TraceContextPropagator::new().extract(&Headers(request.headers()));
        self.tracer.build_with_context(builder, &caller)
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

impl<S> Layer<S> for RpcSpans {
    type Service = Spanned<S>;

    fn layer(&self, inner: S) -> Spanned<S> {
        Spanned { inner, spans: self.clone() }
    }
}

/// A service whose calls are spans.
#[derive(Clone)]
pub struct Spanned<S> {
    inner: S,
    spans: RpcSpans,
}

impl<S, B, R> Service<Request<B>> for Spanned<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if is_health(request.uri().path()) {
            return Box::pin(self.inner.call(request));
        }
        let is_route = http_route(request.uri().path()).is_some();
        let mut span = self.spans.start(&request);
        let answering = self.inner.call(request);
        Box::pin(DECIDED.scope(RefCell::default(), async move {
            let answer = answering.await;
            let decided = DECIDED.with(RefCell::take);
            span.set_attributes(decided.into_iter().flat_map(Decided::attributes));
            // An error without a body has its code in the headers.
            let code = answer.as_ref().ok().and_then(|answer| answer.headers().get("grpc-status"));
            if let Some(code) = code.and_then(|code| code.to_str().ok()) {
                span.set_attribute(KeyValue::new("rpc.response.status_code", code.to_owned()));
            } else if let (true, Ok(answer)) = (is_route, &answer) {
                let status = answer.status();
                span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
                if status.is_server_error() {
                    span.set_status(Status::error(""));
                }
            }
            if !is_route && answer.as_ref().is_ok_and(leads_nowhere) {
                span.update_name("unknown");
            }
            span.end();
            answer
        }))
    }
}

/// Checks for health probes: supervisors send them every few seconds, and their spans would hide the others.
fn is_health(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz") || path.starts_with("/grpc.health.v1.Health/")
}

/// Returns the route of the HTTP API for a path, without the policy in the path of forward-auth.
fn http_route(path: &str) -> Option<&str> {
    const ROUTES: [&str; 10] = [
        "check",
        "check_many",
        "peek",
        "forecast",
        "debit",
        "admit",
        "release",
        "heartbeat",
        "reserve",
        "forward-auth",
    ];
    let route = path.strip_prefix("/v1/")?.split('/').next()?;
    ROUTES.contains(&route).then(|| &path[1..path.len().min("/v1/".len() + route.len())])
}

/// Checks whether there is nothing at the path. Span names are few: untrusted clients must not choose them.
fn leads_nowhere<R>(answer: &Response<R>) -> bool {
    const UNIMPLEMENTED: &[u8] = b"12";
    let code = answer.headers().get("grpc-status");
    answer.status() == StatusCode::NOT_FOUND || code.is_some_and(|code| code.as_bytes() == UNIMPLEMENTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_http_are_named_without_what_callers_put_into_them() {
        let table = [
            ("/v1/check", Some("v1/check")),
            ("/v1/forward-auth/api", Some("v1/forward-auth")),
            ("/v1/", None),
            ("/v1/alice", None),
            ("/alice", None),
            ("/throttlekit.v1.RateLimiter/Check", None),
        ];
        for (path, route) in table {
            assert_eq!(http_route(path), route, "{path}");
        }
        assert!(is_health("/readyz") && is_health("/grpc.health.v1.Health/Check") && !is_health("/v1/check"));
    }
}
