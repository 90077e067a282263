//! Tests of the service without a proxy: Envoy may forward a request whose response is an error, so no client may cause
//! one.

use throttlekit::clock::{Clock, ManualClock, WallClock};
use throttlekit_proto::envoy::attribute_context::{HttpRequest, Peer, Request as Attributes};
use throttlekit_proto::envoy::{Address, SocketAddress};

use super::*;
use crate::StoreUrl;
use crate::access::Access;
use crate::engine::{Backend, EngineOptions, KEY_BYTES_MAX};
use crate::store_options::StoreOptions;

const POLICIES: &str = "version: 1
policies:
  hour: {rate: {algorithm: fixed_window, limit: 3, per: 1h}}
  two: {rate: {limit: 1, per: 1h, by: 1}}
  slots: {concurrency: {limit: 1}}
";

fn over(store: Backend) -> EnvoyAuthorization {
    let (file, _) = crate::policy::load(POLICIES).unwrap();
    EnvoyAuthorization::new(Engine::start(EngineOptions::over(store), file).unwrap())
}

fn api() -> EnvoyAuthorization {
    over(Backend::memory_with_clock(std::sync::Arc::new(ManualClock::at(WallClock.now()))))
}

/// Creates a request from this address with this value of `x-user`, over a route with these settings.
fn request(settings: &[(&str, &str)], address: &str, user: &[u8]) -> Request<CheckRequest> {
    let headers = BTreeMap::from([("x-user".to_owned(), user.to_vec().into())]);
    let socket_address = Some(SocketAddress { address: address.into() });
    let attributes = AttributeContext {
        source: Some(Peer { address: Some(Address { socket_address }) }),
        request: Some(Attributes { http: Some(HttpRequest { headers }) }),
        context_extensions: settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
    };
    Request::new(CheckRequest { attributes: Some(attributes) })
}

fn by_user(user: &[u8]) -> Request<CheckRequest> {
    request(&[("policy", "hour"), ("key_header", "X-User")], "10.0.0.1", user)
}

/// Returns the status that the client gets.
fn status_of(response: &CheckResponse) -> i32 {
    match response.http_response.as_ref().unwrap() {
        HttpResponse::OkResponse(_) => 200,
        HttpResponse::DeniedResponse(denied) => denied.status.as_ref().unwrap().code,
    }
}

async fn check(api: &EnvoyAuthorization, request: Request<CheckRequest>) -> i32 {
    status_of(api.check(request).await.unwrap().get_ref())
}

/// Returns a header and the body of a denial.
fn denial<'r>(response: &'r CheckResponse, name: &str) -> (&'r str, serde_json::Value) {
    let Some(HttpResponse::DeniedResponse(denied)) = &response.http_response else { panic!("{response:?}") };
    let headers = denied.headers.iter().filter_map(|option| option.header.as_ref());
    let value = headers.filter(|header| header.key == name).map(|header| header.value.as_str()).next();
    (value.unwrap_or_default(), serde_json::from_str(&denied.body).unwrap())
}

#[tokio::test]
async fn a_key_of_any_length_and_any_bytes_is_counted() {
    let api = api();
    let long = |length: usize| vec![b'a'; length];
    for key in [long(KEY_BYTES_MAX), long(KEY_BYTES_MAX + 1), long(50 << 10), vec![0xff, 0xfe, 0x80]] {
        for expected in [200, 200, 200, 429] {
            assert_eq!(check(&api, by_user(&key)).await, expected, "{} bytes", key.len());
        }
    }
    let other = [&long(50 << 10)[..], b"b"].concat();
    assert_eq!(check(&api, by_user(&other)).await, 200, "another long key has another count");
}

#[tokio::test]
async fn a_request_without_its_key_header_is_denied() {
    let response = api().check(by_user(b"")).await.unwrap();
    assert_eq!(status_of(response.get_ref()), 400);
    let (kind, problem) = denial(response.get_ref(), "content-type");
    assert_eq!((kind, &problem["status"]), ("application/problem+json", &400.into()));
}

/// Tests a proxy that may use keys of one prefix. Long keys are compared before they are hashed.
#[tokio::test]
async fn a_key_outside_the_granted_prefix_is_denied() {
    let api = api();
    let access = serde_json::json!({
        "anonymous": [{ "endpoints": ["envoy"], "policies": ["hour"], "keys": "acme/" }],
    });
    let access = Access::of(&serde_json::from_value(access).unwrap()).unwrap();
    let caller = access.identify(&http::HeaderMap::new(), None).unwrap();
    let from_proxy = |key: &[u8]| {
        let mut request = by_user(key);
        request.extensions_mut().insert(caller.clone());
        request
    };
    let long = format!("acme/{}", "x".repeat(2_000));
    for expected in [200, 200, 200, 429] {
        assert_eq!(check(&api, from_proxy(long.as_bytes())).await, expected);
    }
    for key in [&b"other/a"[..], long.replace("acme", "emca").as_bytes(), b"acme"] {
        let response = api.check(from_proxy(key)).await.unwrap();
        assert_eq!(status_of(response.get_ref()), 403);
        assert!(!format!("{response:?}").contains("anonymous"), "clients read it: {response:?}");
    }
}

#[tokio::test]
async fn a_proxy_without_the_endpoint_gets_an_error() {
    let access = serde_json::json!({ "anonymous": [{ "endpoints": ["check"] }] });
    let access = Access::of(&serde_json::from_value(access).unwrap()).unwrap();
    let mut request = by_user(b"a");
    request.extensions_mut().insert(access.identify(&http::HeaderMap::new(), None).unwrap());
    assert_eq!(api().check(request).await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn a_proxy_that_gets_no_turn_is_denied() {
    let mut caller = Caller::anyone();
    caller.gets_no_turn();
    let mut request = by_user(b"a");
    request.extensions_mut().insert(caller);
    let response = api().check(request).await.unwrap();
    assert_eq!(status_of(response.get_ref()), 429);
    assert_eq!(denial(response.get_ref(), "retry-after").0, "1");
}

#[tokio::test]
async fn an_outage_denies_where_the_policy_fails_closed() {
    let nowhere =
        StoreUrl::parse("redis://127.0.0.1:1").unwrap().connect(&StoreOptions::default()).await.unwrap();
    let api = over(nowhere);
    // More than open the circuit breaker.
    for _ in 0..8 {
        let response = api.check(by_user(b"alice")).await.unwrap();
        assert_eq!(status_of(response.get_ref()), 503);
        let (wait, problem) = denial(response.get_ref(), "retry-after");
        assert_eq!((wait, &problem["cause"]), ("1", &"store_outage".into()));
        assert!(!problem.to_string().contains("127.0.0.1"), "clients read it: {problem}");
    }
}

#[tokio::test]
async fn requests_without_a_decision_are_denied_unless_the_configuration_is_at_fault() {
    let denied = |refusal| denied_by(refusal).ok().map(|response| status_of(&response));
    for (refusal, status) in [
        (Refusal::Invalid(String::new()), 400),
        (Refusal::Forbidden(String::new()), 403),
        (Refusal::TooMany(String::new()), 429),
        (Refusal::Outage, 503),
        (StoreError::unavailable("x").into(), 503),
        (StoreError::Deadline(std::time::Duration::ZERO).into(), 503),
        (StoreError::Overloaded.into(), 503),
    ] {
        assert_eq!(denied(refusal.clone()), Some(status), "{refusal:?}");
    }
    for refusal in [
        Refusal::UnknownPolicy(String::new()),
        Refusal::Unsupported(String::new()),
        StoreError::misconfigured("x").into(),
        StoreError::bad_state("x").into(),
    ] {
        assert_eq!(denied(refusal.clone()), None, "{refusal:?}");
    }
}

#[tokio::test]
async fn a_misconfigured_route_is_an_error_and_a_key_that_it_lacks_is_a_denial() {
    let api = api();
    let too_much = (i64::MAX as u64 + 1).to_string();
    let routes: [&[(&str, &str)]; 7] = [
        &[],
        &[("policy", "none")],
        &[("policy", "slots")],
        &[("policy", "hour"), ("cost", "0")],
        &[("policy", "hour"), ("cost", too_much.as_str())],
        &[("policy", "hour"), ("key", "a"), ("key_header", "b")],
        &[("policy", "hour"), ("keys", "a")],
    ];
    for settings in routes {
        let error = api.check(request(settings, "10.0.0.1", b"a")).await.unwrap_err();
        assert_ne!(error.code(), Code::Internal, "{settings:?}: {error}");
    }
    let response = api.check(request(&[("policy", "two")], "10.0.0.1", b"a")).await.unwrap();
    assert_eq!(status_of(response.get_ref()), 400);
}

#[tokio::test]
async fn an_address_with_a_zone_is_an_address() {
    let api = api();
    for expected in [200, 200, 200, 429] {
        assert_eq!(check(&api, request(&[("policy", "hour")], "fe80::1%eth0", b"")).await, expected);
    }
}
