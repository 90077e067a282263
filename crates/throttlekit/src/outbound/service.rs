//! The client service: waits, sends, observes, retries.

use std::borrow::Cow;
use std::mem;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode, request, response};
use http_body::Body;
use tokio::time::timeout;
use tower_service::Service;

use super::body::{OutboundBody, REFUSAL_MAX, append};
use super::handle::Outbound;
use super::layer::{EstimatedTokens, OutboundLayer, Settings};
use super::outbound_error::OutboundError;
use super::permit::OutboundPermit;
use super::retry::{CloneBody, NoRetries, Retries};
use crate::http::{GRPC_STATUS, Key};
use crate::{Call, admit::BoxFuture};

/// Bytes of a request's body for each token, if nothing else is known.
const BYTES_PER_TOKEN: u64 = 4;
/// Longest time for which the body of a refusal is read before its retry.
const REFUSAL_READ_MAX: Duration = Duration::from_secs(1);

/// A client wrapped by [`OutboundLayer`].
pub struct OutboundService<S, C = NoRetries> {
    inner: S,
    layer: OutboundLayer<C>,
}

impl<S, C> OutboundService<S, C> {
    pub(super) fn new(inner: S, layer: OutboundLayer<C>) -> Self {
        Self { inner, layer }
    }
}

impl<S: Clone, C> Clone for OutboundService<S, C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, C, B, R> Service<Request<B>> for OutboundService<S, C>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send, Error: Send> + Clone + Send + 'static,
    C: CloneBody<B>,
    B: Body + Send + 'static,
    R: Body<Error: Send> + Send + 'static,
{
    type Response = Response<OutboundBody<R>>;
    type Error = OutboundError<S::Error>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(OutboundError::Client)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let fresh = self.inner.clone();
        let service = mem::replace(&mut self.inner, fresh); // the clone was never polled ready
        let layer = self.layer.clone();
        Box::pin(async move { send(service, layer, request).await })
    }
}

/// Sends a request and its retries.
async fn send<S, C, B, R>(
    mut service: S,
    layer: OutboundLayer<C>,
    request: Request<B>,
) -> Result<Response<OutboundBody<R>>, OutboundError<S::Error>>
where
    S: Service<Request<B>, Response = Response<R>>,
    C: CloneBody<B>,
    B: Body,
    R: Body,
{
    let OutboundLayer { outbound, settings, retries } = layer;
    let (head, body) = request.into_parts();
    let key = settings.key_of(&head).map_err(OutboundError::MissingKey)?;
    let tokens = settings.estimate(&head, &body);
    let mut request = Request::from_parts(head, body);
    retries.request();
    for attempt in 0.. {
        let again = (attempt < retries.max).then(|| copy(&request, &retries)).flatten();
        let mut permit = wait(&outbound, key.as_ref(), tokens).await?;
        let response = service.call(request).await;
        let (response, body) = response.map_err(OutboundError::Client)?.into_parts();
        let reported = permit.observe(&seen(&response));
        match again.filter(|_| reported.is_refusal() && retries.take()) {
            Some(copy) => {
                if reported.retry_after.is_none() {
                    let text = timeout(REFUSAL_READ_MAX, read(body)).await.unwrap_or_default();
                    permit.observe_body(&seen(&response), &text);
                }
                drop(permit);
                outbound.count_retry();
                request = copy;
                std::future::poll_fn(|cx| service.poll_ready(cx)).await.map_err(OutboundError::Client)?;
            }
            None => {
                let body = OutboundBody::new(body, permit, &response, &settings);
                return Ok(Response::from_parts(response, body));
            }
        }
    }
    unreachable!("the last attempt returns its response")
}

async fn wait<E>(
    outbound: &Outbound,
    key: Option<&Key>,
    tokens: u64,
) -> Result<OutboundPermit, OutboundError<E>> {
    let key = key.map_or(&b""[..], Key::as_bytes);
    outbound.until_ready(Call::by(key).cost(tokens)).await.map_err(OutboundError::NotReady)
}

/// Copies a request, if its body can be cloned.
fn copy<B, C: CloneBody<B>>(request: &Request<B>, retries: &Retries<C>) -> Option<Request<B>> {
    let body = retries.clone.clone_body(request.body())?;
    let mut copy = Request::new(body);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

impl Settings {
    fn key_of(&self, head: &request::Parts) -> Result<Option<Key>, crate::http::MissingKey> {
        self.key.as_ref().map(|key| key.extract(head)).transpose()
    }

    fn estimate(&self, head: &request::Parts, body: &impl Body) -> u64 {
        if let Some(EstimatedTokens(tokens)) = head.extensions.get() {
            return *tokens;
        }
        match &self.estimate {
            Some(estimate) => estimate(head),
            None => body.size_hint().lower().div_ceil(BYTES_PER_TOKEN).max(1),
        }
    }
}

/// Returns the head of a response as it is learned from: that of a gRPC call has its outcome in a header.
pub(super) fn seen(response: &response::Parts) -> Cow<'_, response::Parts> {
    let status = match response.headers.get(GRPC_STATUS).map(http::HeaderValue::as_bytes) {
        Some(b"8") => StatusCode::TOO_MANY_REQUESTS, // RESOURCE_EXHAUSTED
        Some(b"14") => StatusCode::SERVICE_UNAVAILABLE, // UNAVAILABLE
        _ => return Cow::Borrowed(response),
    };
    let mut seen = response.clone();
    seen.status = status;
    Cow::Owned(seen)
}

/// Reads the beginning of a body.
async fn read<R: Body>(body: R) -> Vec<u8> {
    let (mut body, mut text) = (Box::pin(body), Vec::new());
    while text.len() < REFUSAL_MAX {
        match std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    append(data, |piece| text.extend_from_slice(piece));
                }
            }
            _ => break,
        }
    }
    text
}

debug_fields!([S: std::fmt::Debug, C] OutboundService<S, C>, |it| inner = it.inner);
