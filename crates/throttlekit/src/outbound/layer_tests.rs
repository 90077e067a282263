//! Tests of the client layer, over a client that responds from a list.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{EstimatedTokens, Outbound, OutboundError, OutboundLayer};
use crate::http::{fixed, header};
use crate::sync::Mutex;
use crate::wait::NotReady;

type Body = Full<Bytes>;

/// Responds with these, in order, then with 200.
fn client(
    responses: Vec<Response<Body>>,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    let responses = Arc::new(Mutex::new(responses.into_iter()));
    service_fn(move |_: Request<Body>| {
        let response = responses.lock().next().unwrap_or_default();
        std::future::ready(Ok(response))
    })
}

fn refusal(delay: &str) -> Response<Body> {
    let response = Response::builder().status(429).header("retry-after-ms", delay);
    response.header("x-ratelimit-limit-requests", 60_000).body(Full::default()).expect("a response")
}

fn request(tokens: u64) -> Request<Body> {
    Request::builder().extension(EstimatedTokens(tokens)).body(Full::from("{}")).expect("a request")
}

fn at_once(tokens_per_minute: u64) -> Outbound {
    let outbound = Outbound::builder("test").requests_per_minute(60_000).tokens_per_minute(tokens_per_minute);
    outbound.max_wait(Duration::ZERO).build().expect("valid limits")
}

#[tokio::test]
async fn a_refusal_is_returned_and_pauses() {
    let layer = OutboundLayer::new(at_once(1_000_000));
    let client = layer.layer(client(vec![refusal("30000")]));
    let response = client.clone().oneshot(request(1)).await.expect("a response");
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let error = client.oneshot(request(1)).await.err();
    assert!(matches!(error, Some(OutboundError::NotReady(NotReady::Timeout(_)))), "{error:?}");
}

#[tokio::test]
async fn a_refused_request_is_retried_once_after_the_pause() {
    let layer =
        OutboundLayer::per_minute(60_000).retry(|body: &Body| Some(body.clone())).build().expect("a layer");
    let client = layer.layer(client(vec![refusal("20"), Response::default(), refusal("1"), refusal("1")]));
    let response = client.clone().oneshot(request(1)).await.expect("a response");
    assert_eq!(response.status(), StatusCode::OK);
    let stats = layer.outbound().stats();
    assert_eq!((stats.admitted, stats.refused, stats.retried), (2, 1, 1));
    assert!(stats.wait_percentile(100) >= Some(Duration::from_millis(16)), "{stats:?}");
    // The budget has no second retry yet.
    let response = client.oneshot(request(1)).await.expect("a response");
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(layer.outbound().stats().retried, 1);
}

#[tokio::test]
async fn a_body_that_cannot_be_cloned_is_not_retried() {
    let layer = OutboundLayer::builder(at_once(1_000_000)).retry(|_: &Body| None).build().expect("a layer");
    let response = layer.layer(client(vec![refusal("1")])).oneshot(request(1)).await.expect("a response");
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn the_delay_of_a_refusal_is_read_from_its_body() {
    let text = r#"{"error":{"message":"Please try again in 30s."}}"#;
    let refusal = Response::builder().status(429).header("x-ratelimit-limit-requests", 60_000);
    let refusal = refusal.body(Full::from(text)).expect("a response");
    let layer = OutboundLayer::new(at_once(1_000_000));
    let response = layer.layer(client(vec![refusal])).oneshot(request(1)).await.expect("a response");
    assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), text);
    let wait = layer.outbound().stats().keys[0].wait;
    assert!(wait > Duration::from_secs(20), "{wait:?}");
}

#[tokio::test]
async fn tokens_are_settled_from_the_usage_that_was_read() {
    let usage = r#"{"usage":{"prompt_tokens":4,"completion_tokens":6,"total_tokens":10}}"#;
    let layer = OutboundLayer::new(at_once(2_000));
    let client = layer.layer(client(vec![Response::new(Full::from(usage))]));
    let response = client.clone().oneshot(request(100)).await.expect("a response");
    response.into_body().collect().await.expect("a body");
    client.oneshot(request(90)).await.expect("the rest of the estimate returned");
}

#[tokio::test]
async fn a_permit_without_the_layer_is_held_by_the_body() {
    let usage = r#"{"usage":{"prompt_tokens":4,"completion_tokens":6,"total_tokens":10}}"#;
    let (outbound, call) = (at_once(2_000), |tokens| crate::Call::by("").cost(tokens));
    let permit = outbound.until_ready(call(100)).await.expect("ready");
    let response = permit.hold(Response::new(Body::from(usage)));
    assert!(outbound.until_ready(call(90)).await.is_err());
    response.into_body().collect().await.expect("a body");
    let refused = outbound.until_ready(call(90)).await.expect("the rest of the estimate returned");
    drop(refused.hold(refusal("30000")));
    assert!(outbound.stats().keys[0].wait > Duration::from_secs(20));
}

#[tokio::test]
async fn a_body_that_is_dropped_keeps_the_estimate() {
    let layer = OutboundLayer::new(at_once(2_000));
    let client = layer.layer(client(vec![Response::new(Full::from("{}"))]));
    drop(client.clone().oneshot(request(100)).await.expect("a response"));
    assert!(client.oneshot(request(90)).await.is_err());
}

#[tokio::test]
async fn a_closure_settles_from_the_head() {
    let layer = OutboundLayer::builder(at_once(2_000)).settle(|_| Some(10)).build().expect("a layer");
    let client = layer.layer(client(Vec::new()));
    client.clone().oneshot(request(100)).await.expect("a response");
    client.oneshot(request(90)).await.expect("the rest of the estimate returned");
}

#[tokio::test]
async fn an_exhausted_grpc_call_pauses() {
    let exhausted = Response::builder().header("content-type", "application/grpc").header("grpc-status", "8");
    let layer = OutboundLayer::new(at_once(1_000_000));
    let client = layer.layer(client(vec![exhausted.body(Full::default()).expect("a response")]));
    client.clone().oneshot(request(1)).await.expect("a response");
    assert!(client.oneshot(request(1)).await.is_err());
    assert_eq!(layer.outbound().stats().refused, 1);
}

#[tokio::test]
async fn keys_are_limited_separately() {
    let outbound = Outbound::builder("test").requests_per_minute(60).max_wait(Duration::ZERO).build();
    let layer =
        OutboundLayer::builder(outbound.expect("limits")).key(header("x-api-key")).build().expect("a layer");
    let client = layer.layer(client(Vec::new()));
    let by =
        |key: &str| Request::builder().header("x-api-key", key).body(Body::default()).expect("a request");
    client.clone().oneshot(by("a")).await.expect("the first of a");
    client.clone().oneshot(by("b")).await.expect("the first of b");
    assert!(matches!(client.clone().oneshot(by("a")).await, Err(OutboundError::NotReady(_))));
    assert!(matches!(client.oneshot(request(1)).await, Err(OutboundError::MissingKey(_))));
}

#[test]
fn an_invalid_key_is_an_error() {
    assert!(OutboundLayer::per_minute(1).key(header("not a name")).build().is_err());
    assert!(OutboundLayer::per_minute(1).key(fixed("all")).build().is_ok());
}
