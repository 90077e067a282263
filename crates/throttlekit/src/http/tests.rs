//! The layer as a whole, in front of a service that reports what it saw.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::*;
use crate::admit::{Admission, Admit, Admitting, Axis, LimitInfo, SharedPermit, StoreError};
use crate::rate::Timestamp;
use crate::{BuildError, Call, Decision, Limiter, Rate, Retry};

/// A limiter that returns one decision for all requests, and remembers the last cost.
#[derive(Clone, Debug)]
pub(super) struct FixedGate {
    answer: Result<Decision, &'static str>,
    cost: Arc<AtomicU64>,
}

impl FixedGate {
    pub(super) fn answers(decision: Decision) -> Self {
        Self { answer: Ok(decision), cost: Arc::default() }
    }

    fn fails() -> Self {
        Self { answer: Err("store is down"), cost: Arc::default() }
    }
}

impl Admit for FixedGate {
    fn admit(&self, call: Call<'_>) -> Admitting {
        self.cost.store(call.units(), Ordering::Relaxed);
        let admission = |decision| Admission::of(Axis::Rate, decision, SharedPermit::none());
        Admitting::ready(self.answer.map(admission).map_err(StoreError::unavailable))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        vec![LimitInfo::new(Axis::Rate, 10, Some(Duration::from_secs(60)))]
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_000)
    }
}

pub(super) fn allowed(remaining: u64) -> Decision {
    Decision { allowed: true, limit: 10, remaining, reset_at: Timestamp::EPOCH, retry_after: Retry::Now }
}

pub(super) fn denied(retry_after: Retry) -> Decision {
    Decision { allowed: false, retry_after, ..allowed(0) }
}

fn gated(gate: impl Admit) -> AdmissionLayerBuilder {
    named("api", gate)
}

fn named(name: &str, admit: impl Admit) -> AdmissionLayerBuilder {
    AdmissionLayer::builder(admit, fixed("all")).name(name)
}

fn deciding(decision: Decision) -> AdmissionLayer {
    gated(FixedGate::answers(decision)).build().unwrap()
}

/// Responds with a header `seen`: the result in the extensions of the request.
fn service()
-> impl Service<Request<()>, Response = Response<String>, Error = Infallible, Future: Send> + Clone {
    service_fn(async |request: Request<()>| {
        let left = request.extensions().get::<Decision>().map(|decision| decision.remaining.to_string());
        let open = request.extensions().get::<StoreError>().map(|_| "open".to_owned());
        let seen = left.or(open).unwrap_or_else(|| "nothing".into());
        Ok::<_, Infallible>(Response::builder().header("seen", seen).body("served".to_owned()).unwrap())
    })
}

fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("not ready at once"),
    }
}

fn get() -> Request<()> {
    Request::new(())
}

fn grpc(content_type: &str) -> Request<()> {
    Request::builder().header("content-type", content_type).body(()).unwrap()
}

fn send(layer: &AdmissionLayer, request: Request<()>) -> Response<AdmissionBody<String>> {
    let Ok(response) = at_once(layer.layer(service()).oneshot(request));
    response
}

fn text(response: Response<AdmissionBody<String>>) -> String {
    let body = at_once(response.into_body().collect()).unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

fn problem(response: Response<AdmissionBody<String>>) -> Value {
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    serde_json::from_str(&text(response)).unwrap()
}

#[test]
fn an_allowed_request_is_served_and_both_sides_see_the_decision() {
    let response = send(&deciding(allowed(7)), get());
    assert_eq!(response.headers()["seen"], "7");
    assert_eq!(response.headers()["ratelimit"], r#""api";r=7;t=0"#);
    assert!(!response.headers().contains_key("retry-after"));
    assert_eq!(response.extensions().get(), Some(&allowed(7)));
    assert_eq!(text(response), "served");
}

#[test]
fn a_denied_request_never_reaches_the_service() {
    let decision = denied(Retry::After(Duration::from_millis(1_200)));
    let response = send(&deciding(decision), get());
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "2");
    assert_eq!(response.headers()["ratelimit"], r#""api";r=0;t=2"#);
    assert!(!response.headers().contains_key("seen"));
    assert_eq!(response.extensions().get(), Some(&decision));
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "The limit 'api' has 0 of 10 units left, fewer than this request costs. Retry in 2 s.",
        "violated-policies": ["api"],
        "retry_after_ms": 1_200,
    });
    assert_eq!(problem(response), expected);
}

proptest! {
    #[test]
    fn whatever_a_plan_is_called_the_problem_is_json_and_names_it(name in "[ -~]{0,20}") {
        let layer = named(&name, FixedGate::answers(denied(Retry::OnRelease))).build().unwrap();
        let problem = problem(send(&layer, get()));
        prop_assert_eq!(&problem["violated-policies"], &json!([name]));
    }
}

#[test]
fn a_wait_below_a_second_is_reported_as_one_second() {
    for wait in [Retry::Now, Retry::After(Duration::from_nanos(1))] {
        assert_eq!(send(&deciding(denied(wait)), get()).headers()["retry-after"], "1");
    }
}

#[test]
fn a_cost_above_the_limit_has_no_retry_after() {
    let response = send(&deciding(denied(Retry::Never)), get());
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(!response.headers().contains_key("retry-after"));
    let problem = problem(response);
    assert_eq!(problem["retry_after_ms"], Value::Null);
    assert!(problem["detail"].as_str().unwrap().ends_with("Waiting does not help."));
}

#[test]
fn a_denial_until_release_has_a_retry_after_of_one_second() {
    let response = send(&deciding(denied(Retry::OnRelease)), get());
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(response.headers()["ratelimit"], r#""api";r=0"#);
    assert_eq!(problem(response)["retry_after_ms"], Value::Null);
}

#[test]
fn a_grpc_client_gets_trailers_only() {
    let layer = deciding(denied(Retry::After(Duration::from_micros(1_500))));
    for (sent, answered) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc+proto", "application/grpc"),
        ("application/grpc-web+proto", "application/grpc-web"),
    ] {
        let response = send(&layer, grpc(sent));
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], answered);
        assert_eq!(response.headers()["grpc-status"], "8");
        assert_eq!(response.headers()["grpc-retry-pushback-ms"], "2");
        assert_eq!(response.headers()["ratelimit"], r#""api";r=0;t=1"#);
        assert!(http_body::Body::is_end_stream(response.body()));
    }
    assert_eq!(send(&layer, grpc("application/grpcish")).status(), StatusCode::TOO_MANY_REQUESTS);
}

#[test]
fn a_grpc_client_must_not_retry_a_cost_above_the_limit() {
    let response = send(&deciding(denied(Retry::Never)), grpc("application/grpc"));
    assert_eq!(response.headers()["grpc-retry-pushback-ms"], "-1");
    let response = send(&deciding(denied(Retry::OnRelease)), grpc("application/grpc"));
    assert!(!response.headers().contains_key("grpc-retry-pushback-ms"));
}

#[test]
fn a_grpc_message_is_escaped_as_the_protocol_wants() {
    let layer = named("50%", FixedGate::answers(denied(Retry::Now))).build().unwrap();
    let response = send(&layer, grpc("application/grpc"));
    assert!(
        response.headers()["grpc-message"].to_str().unwrap().starts_with("The limit '50%25' has 0 of 10")
    );
}

#[test]
fn a_missing_key_is_refused_by_whose_fault_it_is_or_skipped() {
    let gate = FixedGate::answers(allowed(1));
    let by_header = || AdmissionLayer::builder(gate.clone(), header("x-tenant"));
    let by_address = || AdmissionLayer::builder(gate.clone(), client_ip());
    let layers: [(&dyn Fn() -> AdmissionLayerBuilder, _, _); 2] =
        [(&by_header, 400, "3"), (&by_address, 500, "13")];
    for (builder, status, grpc_status) in layers {
        let layer = builder().build().unwrap();
        let response = send(&layer, get());
        assert_eq!(response.status(), status);
        assert_eq!(problem(response)["type"], "about:blank");
        assert_eq!(send(&layer, grpc("application/grpc")).headers()["grpc-status"], grpc_status);

        let skipped = send(&builder().on_missing_key(Fallback::Allow).build().unwrap(), get());
        assert_eq!(skipped.headers()["seen"], "nothing");
        assert!(!skipped.headers().contains_key("ratelimit"));
    }
}

#[test]
fn without_a_decision_requests_are_denied_unless_configured_otherwise() {
    let failing = || gated(FixedGate::fails());
    let closed = send(&failing().build().unwrap(), get());
    assert_eq!(closed.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(closed.headers()["retry-after"], "1");
    assert_eq!(problem(closed)["status"], 503);
    let closed = send(&failing().build().unwrap(), grpc("application/grpc"));
    assert_eq!(closed.headers()["grpc-status"], "14");

    let open = send(&failing().on_error(|_| Fallback::Allow).build().unwrap(), get());
    assert_eq!(open.headers()["seen"], "open");
    assert!(open.extensions().get::<StoreError>().is_some());

    let by_error = |error: &StoreError| {
        if error.to_string().ends_with("store is down") { Fallback::Allow } else { Fallback::Reject }
    };
    assert_eq!(send(&failing().on_error(by_error).build().unwrap(), get()).headers()["seen"], "open");
}

#[test]
fn exempt_requests_pass_untouched() {
    let layer = gated(FixedGate::answers(denied(Retry::Never)));
    let layer = layer.exempt(|request| request.uri.path() == "/healthz").build().unwrap();
    let health = Request::get("/healthz").body(()).unwrap();
    let response = send(&layer, health);
    assert_eq!(response.headers()["seen"], "nothing");
    assert!(!response.headers().contains_key("ratelimit"));
    assert_eq!(send(&layer, get()).status(), StatusCode::TOO_MANY_REQUESTS);
}

#[test]
fn a_request_costs_what_the_closure_says() {
    let gate = FixedGate::answers(allowed(1));
    send(&gated(gate.clone()).build().unwrap(), get());
    assert_eq!(gate.cost.load(Ordering::Relaxed), 1);
    let by_path = gated(gate.clone()).cost(|request| request.uri.path().len() as u64);
    send(&by_path.build().unwrap(), get());
    assert_eq!(gate.cost.load(Ordering::Relaxed), "/".len() as u64);
}

#[test]
fn a_shaped_request_waits_for_its_turn_only_where_someone_can_wait() {
    let turn = Duration::from_millis(30);
    let shaped = Decision { retry_after: Retry::After(turn), ..allowed(3) };
    assert_eq!(send(&deciding(shaped), get()).headers()["seen"], "3");

    let forever = gated(FixedGate::answers(shaped)).delay(|_| std::future::pending()).build().unwrap();
    let waiting = pin!(forever.layer(service()).oneshot(get()));
    assert!(waiting.poll(&mut Context::from_waker(Waker::noop())).is_pending());

    let waited = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&waited);
    let patient = gated(FixedGate::answers(shaped)).delay(move |wait| {
        told.store(wait.as_millis() as u64, Ordering::Relaxed);
        ready(())
    });
    let response = send(&patient.build().unwrap(), get());
    assert_eq!(response.headers()["seen"], "3");
    assert_eq!(waited.load(Ordering::Relaxed), 30);
    assert!(!response.headers().contains_key("retry-after"));
}

#[test]
fn clones_and_services_of_one_layer_share_the_limit() {
    let layer = AdmissionLayer::new(Limiter::new(Rate::per_hour(2)).unwrap(), fixed("all")).unwrap();
    let statuses = [send(&layer, get()), send(&layer.clone(), get()), send(&layer, get())];
    assert_eq!(statuses.map(|response| response.status().as_u16()), [200, 200, 429]);
}

#[test]
fn a_limiter_can_be_shared_between_plans() {
    let limiter = Arc::new(Limiter::new(Rate::per_hour(1)).unwrap());
    let layer = |name| named(name, Arc::clone(&limiter)).build().unwrap();
    assert_eq!(send(&layer("reads"), get()).status(), 200);
    assert_eq!(send(&layer("writes"), get()).status(), 429);
}

#[test]
fn plans_are_chosen_by_request_and_do_not_share() {
    let plan = |name, rate| Plan::new(name, Limiter::new(rate).unwrap()).unwrap();
    let (free, pro) = (plan("free", Rate::per_hour(1)), plan("pro", Rate::per_hour(100)));
    let layer = AdmissionLayer::by_plan(move |request| match request.uri.path() {
        "/pro" => Ok((pro.clone(), "alice".into())),
        "/free" => Ok((free.clone(), "alice".into())),
        _ => Err(MissingKey::Client),
    });
    let layer = layer.build().unwrap();
    let told = |path: &str| {
        let response = send(&layer, Request::get(path).body(()).unwrap());
        let policy =
            response.headers().get("ratelimit-policy").map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), policy.unwrap_or_default())
    };
    assert_eq!(told("/free"), (200, r#""free";q=1;w=3600"#.into()));
    assert_eq!(told("/free"), (429, r#""free";q=1;w=3600"#.into()));
    assert_eq!(told("/pro"), (200, r#""pro";q=100;w=3600"#.into()));
    assert_eq!(told("/"), (400, String::new()));
}

#[test]
fn stacked_layers_list_every_limit_and_the_tightest_decision_stands() {
    let inner = named("inner", FixedGate::answers(allowed(3))).build().unwrap();
    for (outer, tightest) in [(allowed(2), 2), (allowed(9), 3)] {
        let outer = deciding(outer);
        let Ok(response) = at_once(outer.layer(inner.layer(service())).oneshot(get()));
        let listed: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
        assert_eq!(listed.len(), 2, "{listed:?}");
        assert_eq!(response.headers()["seen"], *tightest.to_string());
        assert_eq!(response.extensions().get(), Some(&allowed(tightest)));
    }
}

/// A limiter like a network store: its decision takes a while.
struct SlowGate;

impl Admit for SlowGate {
    fn admit(&self, call: Call<'_>) -> Admitting {
        let remaining = call.key().len() as u64;
        let mut asked = false;
        Admitting::pending(poll_fn(move |_| match mem::replace(&mut asked, true) {
            false => Poll::Pending,
            true => Poll::Ready(Ok(Admission::of(Axis::Rate, allowed(remaining), SharedPermit::none()))),
        }))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        vec![LimitInfo::new(Axis::Rate, 10, None)]
    }

    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
}

#[test]
fn a_request_waits_for_a_gate_that_takes_its_time() {
    let key = |_: &http::request::Parts| Some(Key::from("four"));
    let layer = AdmissionLayer::builder(SlowGate, key).name("slow").build().unwrap();
    let mut response = pin!(layer.layer(service()).oneshot(get()));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(response.as_mut().poll(&mut cx).is_pending());
    let Poll::Ready(Ok(response)) = response.poll(&mut cx) else { panic!("still pending") };
    assert_eq!(response.headers()["seen"], "4");
    assert_eq!(response.headers()["ratelimit-policy"], r#""slow";q=10"#);
}

/// A service may hand out readiness once, as one with a bounded queue does.
#[test]
fn the_service_that_was_ready_is_the_one_called() {
    #[derive(Default)]
    struct OnceReady(bool);

    impl Clone for OnceReady {
        fn clone(&self) -> Self {
            Self(false)
        }
    }

    impl Service<Request<()>> for OnceReady {
        type Response = Response<String>;
        type Error = Infallible;
        type Future = Ready<Result<Response<String>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            self.0 = true;
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            assert!(mem::take(&mut self.0), "called before it was ready");
            ready(Ok(Response::default()))
        }
    }

    let mut service = deciding(allowed(1)).layer(OnceReady::default());
    for _ in 0..2 {
        let Ok(ready) = at_once(service.ready());
        let Ok(response) = at_once(ready.call(get()));
        assert_eq!(response.status(), StatusCode::OK);
    }
}

#[test]
fn the_policy_follows_the_limit() {
    let fair = Arc::new(crate::FairLimiter::new(crate::Budget::per_minute(100)).unwrap());
    let layer = named("fair", fair.clone()).build().unwrap();
    assert_eq!(send(&layer, get()).headers()["ratelimit-policy"], r#""fair";q=100;w=60"#);
    fair.set_limit(1_000_000);
    let response = send(&layer, get());
    assert_eq!(response.headers()["ratelimit-policy"], r#""fair";q=1000000;w=60"#);
    assert!(response.headers()["ratelimit"].to_str().unwrap().starts_with(r#""fair";r=999998"#));
}

#[test]
fn a_client_that_paces_itself_by_the_policy_is_as_fast_as_it_may_be() {
    let layer = gated(Limiter::new(Rate::per_second(5)).unwrap()).build().unwrap();
    let response = send(&layer, get());
    assert_eq!(response.headers()["ratelimit-policy"], r#""api";q=5;w=1"#);
    let layer = gated(Limiter::new(Rate::per_second(5).burst(1)).unwrap()).build().unwrap();
    let response = send(&layer, get());
    assert_eq!(response.headers()["ratelimit-policy"], r#""api";q=5;w=1"#);
}

#[test]
fn a_request_without_a_peer_is_refused_with_an_error_that_names_the_fix() {
    let gate = FixedGate::answers(allowed(1));
    let layer = AdmissionLayer::new(gate, client_ip().behind_proxies(1)).unwrap();
    let response = send(&layer, get());
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let missing = *response.extensions().get::<MissingKey>().expect("it is there for layers around");
    assert!(missing.to_string().contains("feature `axum`") && missing.to_string().contains("peer_from"));
    assert!(problem(response)["detail"].as_str().unwrap().contains("no peer address"));
}

#[test]
fn a_layer_that_cannot_work_is_reported_when_it_is_built() {
    let gate = || FixedGate::answers(allowed(1));
    let wrong = |built: Result<AdmissionLayer, BuildError>| built.unwrap_err();
    let invalid = |name: &str| BuildError::InvalidName(name.into());
    assert_eq!(wrong(AdmissionLayer::new(gate(), header("x tenant"))), invalid("x tenant"));
    assert_eq!(wrong(gated(gate()).key(header("ö")).build()), invalid("ö"));
    assert_eq!(wrong(named("ö", gate()).build()), invalid("ö"));
    let networks = client_ip().behind_networks(["10.0.0.0/99"]);
    assert_eq!(wrong(AdmissionLayer::new(gate(), fixed("a").or(networks))), invalid("10.0.0.0/99"));
    assert!(matches!(wrong(gated(gate()).retry_jitter(-0.1).build()), BuildError::OutOfRange { .. }));
    assert!(matches!(wrong(AdmissionLayer::per_minute(0, fixed("all"))), BuildError::Limit(_)));
}

#[test]
fn retry_after_is_jittered_unless_that_is_turned_off() {
    let hour = denied(Retry::After(Duration::from_secs(3_600)));
    let told = |layer: &AdmissionLayer| -> u64 {
        send(layer, get()).headers()["retry-after"].to_str().unwrap().parse().unwrap()
    };
    let jittered = deciding(hour);
    let waits: Vec<u64> = (0..100).map(|_| told(&jittered)).collect();
    assert!(
        waits.iter().all(|wait| (3_600..=3_960).contains(wait)) && waits.iter().any(|wait| *wait != 3_600)
    );
    let exact = gated(FixedGate::answers(hour)).retry_jitter(0.0).build().unwrap();
    assert!((0..100).all(|_| told(&exact) == 3_600));
}

#[test]
fn preflights_and_health_checks_are_exempt_if_selected() {
    let layer = gated(FixedGate::answers(denied(Retry::Never))).exempt(preflight_or_health).build().unwrap();
    let preflight =
        Request::options("/v1").header("origin", "https://a").header("access-control-request-method", "PUT");
    for (request, status) in [
        (preflight, 200),
        (Request::options("/v1"), 429),
        (Request::get("/healthz"), 200),
        (Request::head("/readyz"), 200),
        (Request::post("/healthz"), 429),
        (Request::get("/v1/health"), 429),
    ] {
        assert_eq!(send(&layer, request.body(()).unwrap()).status(), status);
    }
}
