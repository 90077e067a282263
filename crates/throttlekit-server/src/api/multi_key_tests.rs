//! Further keys through gRPC and HTTP: they reach the limits that count by them, and the caller needs the right to
//! each.

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use throttlekit_proto::v1::fleet_server::Fleet;
use throttlekit_proto::v1::rate_limiter_server::RateLimiter;
use throttlekit_proto::v1::{
    AdmitRequest, CheckManyRequest, CheckRequest, DebitRequest, ForecastRequest, Keys, PeekRequest,
    ReserveRequest,
};
use tonic::{Code, Request, Status};
use tower::ServiceExt;

use super::grpc::{LeaseApi, RateLimiterApi};
use super::http::router;
use crate::access::{Access, Caller};
use crate::engine::{Backend, Engine, EngineOptions};

const POLICIES: &str = "version: 1
policies:
  rates: {rate: [{limit: 5, per: 1d}, {name: org, algorithm: fixed_window, limit: 9, per: 1d, by: 1}]}
  tokens: {cost: {budget: 100, per: 1d, by: 1}}
  lent: {rate: {algorithm: fixed_window, limit: 9, per: 1d, by: 1}, fleet: {}}
  work: {concurrency: {limit: 1000}, cost: {budget: 100, per: 1d, by: 1}}
";

fn engine() -> Engine {
    let (file, _) = crate::policy::load(POLICIES).unwrap();
    Engine::start(EngineOptions::over(Backend::memory()), file).unwrap()
}

/// Returns a caller whose keys begin with `acme/`.
fn acme() -> Caller {
    let endpoints = "[check, peek, debit, admit, reserve]";
    let spec =
        serde_saphyr::from_str(&format!("anonymous: [{{endpoints: {endpoints}, keys: acme/}}]")).unwrap();
    Access::of(&spec).unwrap().identify(&HeaderMap::new(), None).unwrap()
}

fn asked<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(acme());
    request
}

/// Returns what each RPC reports for a call by `acme/ada` and by this further key: the rest of nine units or a hundred
/// tokens.
async fn by_grpc(engine: &Engine, other: &str) -> Vec<Result<i64, Code>> {
    let (limiter, fleet) = (RateLimiterApi::new(engine.clone()), LeaseApi::new(engine.clone()));
    let (key, keys) = ("acme/ada".to_owned(), vec![other.to_owned()]);
    let left = |decision: Option<throttlekit_proto::v1::Decision>| decision.unwrap().remaining;
    let code = |status: Status| status.code();
    let rates = || "rates".to_owned();
    let check = CheckRequest { policy: rates(), key: key.clone(), keys: keys.clone(), cost: 1 };
    let check = limiter.check(asked(check)).await.map(|told| left(told.into_inner().decision));
    let others = vec![Keys { keys: keys.clone() }];
    let many = CheckManyRequest { policy: rates(), keys: vec![key.clone()], others, cost: 1 };
    let many = limiter.check_many(asked(many)).await;
    let many = many.map(|told| told.into_inner().decisions[0].remaining);
    let peek = PeekRequest { policy: rates(), key: key.clone(), keys: keys.clone() };
    let peek = limiter.peek(asked(peek)).await.map(|told| left(told.into_inner().decision));
    let forecast = ForecastRequest { policy: rates(), key: key.clone(), keys: keys.clone(), cost: 1 };
    let forecast = limiter.forecast(asked(forecast)).await;
    let forecast = forecast.map(|told| told.into_inner().forecast.unwrap().spendable_now);
    let (tokens, policy) = (30, "tokens".to_owned());
    let debit =
        DebitRequest { policy, key: key.clone(), keys: keys.clone(), tokens, ..DebitRequest::default() };
    let debit = limiter.debit(asked(debit)).await.map(|told| left(told.into_inner().decision));
    let admit = AdmitRequest {
        policy: "work".into(),
        key: key.clone(),
        keys: keys.clone(),
        cost: 10,
        ..AdmitRequest::default()
    };
    let admit = limiter.admit(asked(admit)).await.map(|told| left(told.into_inner().decision));
    let reserve = ReserveRequest { policy: "lent".into(), key, keys, wants: 20, ..ReserveRequest::default() };
    let reserve = fleet.reserve(asked(reserve)).await;
    let reserve = reserve.map(|told| told.into_inner().lease.unwrap().capacity);
    [check, many, peek, forecast, debit, admit, reserve].map(|told| told.map_err(code)).to_vec()
}

async fn post(router: &Router, path: &str, body: &Value) -> (StatusCode, Value) {
    let request = http::Request::post(path).header("content-type", "application/json").extension(acme());
    let response = router.clone().oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

/// Returns the same over HTTP.
async fn by_http(engine: &Engine, other: &str) -> Vec<Result<i64, StatusCode>> {
    let router = router(engine.clone());
    let with = |policy: &str| json!({ "policy": policy, "key": "acme/ada", "keys": [other] });
    let many = json!({ "policy": "rates", "keys": ["acme/ada"], "others": [[other]] });
    let and = |policy: &str, name: &str, number: u64| {
        let mut body = with(policy);
        body[name] = json!(number);
        body
    };
    let asks = [
        ("check", with("rates"), "/decision/remaining"),
        ("check_many", many, "/decisions/0/remaining"),
        ("peek", with("rates"), "/decision/remaining"),
        ("forecast", with("rates"), "/forecast/spendable_now"),
        ("debit", and("tokens", "tokens", 30), "/decision/remaining"),
        ("admit", and("work", "cost", 10), "/decision/remaining"),
        ("reserve", and("lent", "wants", 20), "/lease/capacity"),
    ];
    let mut told = Vec::new();
    for (route, body, at) in asks {
        let (status, answer) = post(&router, &format!("/v1/{route}"), &body).await;
        let number = answer.pointer(at).and_then(Value::as_i64);
        told.push(if status == StatusCode::OK { Ok(number.unwrap()) } else { Err(status) });
    }
    told
}

/// Remaining units of a fresh engine after each of the seven requests.
const LEFT: [i64; 7] = [4, 3, 3, 3, 70, 90, 9];

#[tokio::test]
async fn every_question_brings_further_keys_to_the_limits_that_go_by_them() {
    assert_eq!(by_grpc(&engine(), "acme/org").await, LEFT.map(Ok));
    assert_eq!(by_http(&engine(), "acme/org").await, LEFT.map(Ok));
}

#[tokio::test]
async fn a_further_key_that_is_not_the_callers_is_refused_by_every_question() {
    let engine = engine();
    assert_eq!(by_grpc(&engine, "rival/org").await, [Err(Code::PermissionDenied); 7]);
    assert_eq!(by_http(&engine, "rival/org").await, [Err(StatusCode::FORBIDDEN); 7]);
    assert_eq!(by_grpc(&engine, "acme/org").await, LEFT.map(Ok), "and charged nothing");
}

#[tokio::test]
async fn further_keys_of_many_calls_come_for_each_or_for_none() {
    let router = router(engine());
    let ask = |others: Value| json!({ "policy": "rates", "keys": ["acme/a", "acme/b"], "others": others });
    let one = [["acme/org"]];
    assert_eq!(post(&router, "/v1/check_many", &ask(json!(one))).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(post(&router, "/v1/check_many", &ask(json!([]))).await.0, StatusCode::BAD_REQUEST);
    let both = [["acme/org"], ["acme/org"]];
    assert_eq!(post(&router, "/v1/check_many", &ask(json!(both))).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_debit_of_a_lease_is_for_who_may_debit_every_key_of_it() {
    let engine = engine();
    let anyone = Request::new(AdmitRequest {
        policy: "work".into(),
        key: "acme/ada".into(),
        keys: vec!["rival/org".into()],
        ..AdmitRequest::default()
    });
    let api = RateLimiterApi::new(engine.clone());
    let lease_id = api.admit(anyone).await.unwrap().into_inner().lease_id;
    let debit = DebitRequest { lease_id: lease_id.clone(), tokens: 5, ..DebitRequest::default() };
    assert_eq!(api.debit(asked(debit)).await.unwrap_err().code(), Code::PermissionDenied);
    let told = post(&router(engine), "/v1/debit", &json!({ "lease_id": lease_id, "tokens": 5 })).await;
    assert_eq!(told.0, StatusCode::FORBIDDEN);
}
