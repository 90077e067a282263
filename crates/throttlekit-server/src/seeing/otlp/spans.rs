//! A span of each RPC, with what was decided in it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response};
use opentelemetry::KeyValue;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Span, SpanKind, Tracer};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracer;
use throttlekit::admission::Event;
use tower::{Layer, Service};

tokio::task_local! {
    /// What was decided in the RPC that this task serves.
    static DECIDED: RefCell<Option<Decided>>;
}

/// What a span says of a decision. Its key is left out.
struct Decided {
    policy: String,
    allowed: bool,
    axis: Option<&'static str>,
    guarantee: &'static str,
}

/// Takes note of a decision, on the task that asked. Of several, the first denial counts, or else the last.
pub(crate) fn note(event: &Event<'_>) {
    // Outside of an RPC there is no span to tell it.
    let _ = DECIDED.try_with(|decided| {
        let mut decided = decided.borrow_mut();
        if decided.as_ref().is_none_or(|before| before.allowed) {
            *decided = Some(Decided {
                policy: event.policy.to_owned(),
                allowed: event.decision.allowed,
                axis: event.binding_axis.map(throttlekit::Axis::label),
                guarantee: event.guarantee.label(),
            });
        }
    });
}

impl Decided {
    fn attributes(self) -> impl Iterator<Item = KeyValue> {
        let decision = if self.allowed { "allowed" } else { "denied" };
        let axis = self.axis.filter(|_| !self.allowed);
        [
            Some(KeyValue::new("admission.decision", decision)),
            Some(KeyValue::new("admission.policy", self.policy)),
            Some(KeyValue::new("admission.guarantee", self.guarantee)),
            axis.map(|axis| KeyValue::new("admission.binding_axis", axis)),
        ]
        .into_iter()
        .flatten()
    }
}

/// Makes a span of each RPC, below the caller's if it sent a `traceparent`.
#[derive(Clone)]
pub struct RpcSpans {
    tracer: SdkTracer,
}

impl RpcSpans {
    pub(super) fn new(tracer: SdkTracer) -> Self {
        Self { tracer }
    }

    fn start<B>(&self, request: &Request<B>) -> impl Span + Send + 'static {
        let name = request.uri().path().trim_start_matches('/').to_owned();
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
        let mut span = self.spans.start(&request);
        let answering = self.inner.call(request);
        Box::pin(DECIDED.scope(RefCell::default(), async move {
            let answer = answering.await;
            let decided = DECIDED.with(RefCell::take);
            span.set_attributes(decided.into_iter().flat_map(Decided::attributes));
            // An error without a body says its code at once.
            let code = answer.as_ref().ok().and_then(|answer| answer.headers().get("grpc-status"));
            if let Some(code) = code.and_then(|code| code.to_str().ok()) {
                span.set_attribute(KeyValue::new("rpc.response.status_code", code.to_owned()));
            }
            span.end();
            answer
        }))
    }
}
