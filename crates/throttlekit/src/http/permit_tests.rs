//! Permits, from admission to the end of the response body.

use std::future::{pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::*;
use crate::guard::{Ceiling, GuardStats};
use crate::{Guard, Limit, Policy, Rate};

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn at_once<F: Future>(future: F) -> F::Output {
    match poll(pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it has to wait"),
    }
}

/// Returns a layer in front of the work that this guard protects.
fn guarded(guard: &Guard) -> AdmissionLayer {
    AdmissionLayer::new(guard.clone(), fixed("all")).unwrap()
}

fn request() -> Request<()> {
    Request::new(())
}

type Answer<B = String> = Result<Response<B>, &'static str>;

fn serving<B, F: Future<Output = Answer<B>> + Send>(
    serve: impl Fn() -> F + Clone,
) -> impl Service<Request<()>, Response = Response<B>, Error = &'static str, Future = F> + Clone {
    service_fn(move |_| serve())
}

fn status(status: StatusCode) -> Answer {
    let mut response = Response::new(String::from("done"));
    *response.status_mut() = status;
    Ok(response)
}

/// Returns the samples of a guard, and the number still in flight.
fn learnt(guard: &Guard) -> (u64, u64, u32) {
    let GuardStats { samples, dropped, in_flight, .. } = guard.stats();
    (samples, dropped, in_flight)
}

#[test]
fn a_slot_is_held_until_the_body_has_been_read() {
    let guard = Guard::new(1).unwrap();
    let service = guarded(&guard).layer(serving(|| ready(status(StatusCode::OK))));
    let response = at_once(service.clone().oneshot(request())).unwrap();
    assert_eq!(guard.stats().in_flight, 1);
    let refused = at_once(service.clone().oneshot(request())).unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "1");
    let words = at_once(refused.into_body().collect()).unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&words).contains("1 of 1"), "{words:?}");
    assert_eq!(at_once(response.into_body().collect()).unwrap().to_bytes(), "done");
    assert_eq!(guard.stats().in_flight, 0);
}

#[test]
fn a_grpc_client_gets_resource_exhausted_without_pushback() {
    let guard = Guard::new(1).unwrap();
    let _taken = guard.try_acquire(());
    let service = guarded(&guard).layer(serving(|| ready(status(StatusCode::OK))));
    let mut call = request();
    call.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    let refused = at_once(service.oneshot(call)).unwrap();
    assert_eq!(refused.headers()["grpc-status"], "8");
    assert!(!refused.headers().contains_key("grpc-retry-pushback-ms"));
}

#[test]
fn learned_limits_depend_on_the_status() {
    for (code, learns) in [
        (200, (1, 0, 0)),
        (304, (1, 0, 0)),
        (404, (0, 0, 0)),
        (500, (0, 0, 0)),
        (429, (0, 1, 0)),
        (503, (0, 1, 0)),
        (504, (0, 1, 0)),
    ] {
        let guard = Guard::new(Ceiling::between(4, 100)).unwrap();
        let code = StatusCode::from_u16(code).unwrap();
        let service = guarded(&guard).layer(serving(move || ready(status(code))));
        let response = at_once(service.oneshot(request())).unwrap();
        at_once(response.into_body().collect()).unwrap();
        assert_eq!(learnt(&guard), learns, "{code}");
    }
}

#[test]
fn a_grpc_call_reports_its_outcome_in_headers_or_trailers() {
    for (status, learns) in [("0", (1, 0, 0)), ("5", (0, 0, 0)), ("8", (0, 1, 0)), ("14", (0, 1, 0))] {
        for in_headers in [true, false] {
            let guard = Guard::new(Ceiling::between(4, 100)).unwrap();
            let serve = move || {
                let mut response = Response::new(Trailed(Some(status).filter(|_| !in_headers)));
                response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
                if in_headers {
                    response.headers_mut().insert("grpc-status", status.parse().unwrap());
                }
                ready(Ok(response))
            };
            let service = guarded(&guard).layer(serving(serve));
            let response = at_once(service.oneshot(request())).unwrap();
            at_once(response.into_body().collect()).unwrap();
            assert_eq!(learnt(&guard), learns, "{status}, in headers: {in_headers}");
        }
    }
}

#[test]
fn a_service_that_fails_is_a_drop_and_so_is_a_body_that_breaks_off() {
    let guard = Guard::new(Ceiling::between(4, 100)).unwrap();
    let layer = guarded(&guard);
    assert!(
        at_once(layer.layer(serving(|| ready(Answer::<String>::Err("broken")))).oneshot(request())).is_err()
    );
    assert_eq!(learnt(&guard), (0, 1, 0));
    let body = at_once(layer.layer(serving(|| ready(Ok(Response::new(Breaks))))).oneshot(request())).unwrap();
    assert!(at_once(body.into_body().collect()).is_err());
    assert_eq!(learnt(&guard), (0, 2, 0));
}

#[test]
fn a_disconnected_client_is_not_a_sample() {
    let guard = Guard::new(Ceiling::between(4, 100)).unwrap();
    let layer = guarded(&guard);
    {
        let mut served = pin!(layer.layer(serving(pending::<Answer>)).oneshot(request()));
        assert!(poll(served.as_mut()).is_pending());
        assert_eq!(guard.stats().in_flight, 1);
    }
    assert_eq!(learnt(&guard), (0, 0, 0), "while it was served");
    drop(at_once(layer.layer(serving(|| ready(status(StatusCode::OK)))).oneshot(request())).unwrap());
    assert_eq!(learnt(&guard), (0, 0, 0), "while it was answered");
}

#[test]
fn a_panic_is_a_drop_even_where_someone_catches_it() {
    let guard = Guard::new(Ceiling::between(4, 100)).unwrap();
    let service = guarded(&guard).layer(serving(|| poll_fn(|_| -> Poll<Answer> { panic!() })));
    let mut served = Box::pin(service.oneshot(request()));
    assert!(catch_unwind(AssertUnwindSafe(|| poll(served.as_mut()).is_ready())).is_err());
    drop(served);
    assert_eq!(learnt(&guard), (0, 1, 0));
}

#[test]
fn an_empty_body_holds_nothing_since_servers_do_not_read_it() {
    let guard = Guard::new(Ceiling::between(4, 100)).unwrap();
    let service = guarded(&guard).layer(serving(|| ready(Ok(Response::new(String::new())))));
    let _unread = at_once(service.oneshot(request())).unwrap();
    assert_eq!(learnt(&guard), (1, 0, 0));
}

#[test]
fn the_last_frame_gives_the_slot_back_since_servers_do_not_poll_after_it() {
    let guard = Guard::new(Ceiling::between(4, 100)).unwrap();
    let service = guarded(&guard).layer(serving(|| ready(status(StatusCode::OK))));
    let mut body = at_once(service.oneshot(request())).unwrap().into_body();
    assert!(at_once(body.frame()).is_some());
    assert_eq!(learnt(&guard), (1, 0, 0));
}

#[test]
fn an_exempt_request_needs_no_slot() {
    let guard = Guard::new(0).unwrap();
    let layer = AdmissionLayer::builder(guard, fixed("all")).exempt(preflight_or_health).build().unwrap();
    let service = layer.layer(serving(|| ready(status(StatusCode::OK))));
    let ask = |path: &str| at_once(service.clone().oneshot(Request::get(path).body(()).unwrap()));
    assert_eq!(ask("/healthz").unwrap().status(), StatusCode::OK);
    assert_eq!(ask("/").unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_its_turn_but_not_longer_than_it_may() {
    let guard = Guard::builder(1).queue_max(4).build().unwrap();
    let layer = AdmissionLayer::builder(guard.clone(), fixed("all"))
        .wait(Duration::from_millis(100), tokio::time::sleep)
        .build()
        .unwrap();
    let service = layer.layer(serving(|| ready(status(StatusCode::OK))));
    let first = service.clone().oneshot(request()).await.unwrap();
    let second = tokio::spawn(service.clone().oneshot(request()));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(guard.stats().waiting, 1);
    drop(first);
    let second = second.await.unwrap().unwrap();
    assert_eq!(second.status(), StatusCode::OK);

    let third = service.oneshot(request()).await.unwrap();
    assert_eq!(third.status(), StatusCode::SERVICE_UNAVAILABLE, "the second is still being read");
    assert_eq!((guard.stats().waiting, guard.stats().in_flight), (0, 1));
}

/// A policy of one slot and 1,000 tokens a minute.
fn chat() -> Arc<Policy> {
    let tokens = Limit::token_budget(1_000, Duration::from_secs(86_400)).unwrap();
    Arc::new(Policy::builder("chat").concurrency(1).tokens(tokens).build().unwrap())
}

/// Returns the tokens left to the key of the layer.
fn left(policy: &Arc<Policy>) -> u64 {
    let admission = policy.admit("shared/:all");
    admission.axes.get(crate::Axis::Cost).unwrap().remaining + u64::from(admission.allowed)
}

#[test]
fn the_cost_is_settled_from_a_header_when_the_body_ends() {
    let policy = chat();
    let layer = AdmissionLayer::builder(Arc::clone(&policy), fixed("all"))
        .cost(|_| 400)
        .settle(|_, headers| headers.get("x-tokens")?.to_str().ok()?.parse().ok())
        .build()
        .unwrap();
    let serve = || {
        let mut response = Response::new(String::from("done"));
        response.headers_mut().insert("x-tokens", 150.into());
        ready(Ok(response))
    };
    let response = at_once(layer.layer(serving(serve)).oneshot(request())).unwrap();
    let told = response.headers()["ratelimit"].to_str().unwrap();
    assert!(told.starts_with(r#""default";r=600;t="#), "{told}");
    let full = at_once(layer.layer(serving(serve)).oneshot(request())).unwrap();
    assert_eq!(full.status(), StatusCode::SERVICE_UNAVAILABLE);
    at_once(response.into_body().collect()).unwrap();
    assert_eq!(left(&policy), 850);
}

#[test]
fn only_failures_are_charged() {
    let policy = chat();
    let layer = AdmissionLayer::builder(Arc::clone(&policy), fixed("all"))
        .cost(|_| 100)
        .count_failures(|status, _| status == StatusCode::UNAUTHORIZED)
        .build()
        .unwrap();
    for (code, remaining) in [(200, 1_000), (401, 900), (404, 900), (401, 800)] {
        let code = StatusCode::from_u16(code).unwrap();
        let response = at_once(layer.layer(serving(move || ready(status(code)))).oneshot(request())).unwrap();
        at_once(response.into_body().collect()).unwrap();
        assert_eq!(left(&policy), remaining, "{code}");
    }
}

#[test]
fn a_limiter_that_gives_nothing_back_cannot_settle() {
    let limiter = crate::Limiter::new(Rate::per_minute(60)).unwrap();
    let built = AdmissionLayer::builder(limiter, fixed("all")).settle(|_, _| Some(1)).build();
    assert_eq!(built.unwrap_err(), crate::BuildError::NotSettleable);
}

#[test]
fn each_axis_of_a_policy_is_reported_under_its_own_name() {
    let tokens = Limit::token_budget(1_000, Duration::from_secs(60)).unwrap();
    let policy = Policy::builder("chat").rate(Rate::per_minute(60)).tokens(tokens).build().unwrap();
    let policy = Arc::new(policy);
    let ask = |style, cost| {
        let builder = AdmissionLayer::builder(Arc::clone(&policy), fixed("all")).name("chat").headers(style);
        let layer = builder.cost(move |_| cost).build().unwrap();
        at_once(layer.layer(serving(|| ready(status(StatusCode::OK)))).oneshot(request())).unwrap()
    };
    let listed = ask(HeaderStyle::Standard, 100);
    let policies: Vec<_> = listed.headers().get_all("ratelimit-policy").iter().collect();
    assert_eq!(policies, [r#""chat-rate";q=60;w=60"#, r#""chat-cost";q=1000;w=60"#]);
    drop(listed);
    let openai = ask(HeaderStyle::OpenAi, 100);
    let told = |name: &str| openai.headers()[name].to_str().unwrap().to_owned();
    assert_eq!([told("x-ratelimit-limit-requests"), told("x-ratelimit-limit-tokens")], ["60", "1000"]);
    assert!(told("x-ratelimit-reset-requests").ends_with('s'));
    drop(openai);
    let denied = ask(HeaderStyle::Anthropic, 1_001);
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(denied.headers()["anthropic-ratelimit-tokens-reset"].to_str().unwrap().ends_with('Z'));
    let words = at_once(denied.into_body().collect()).unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&words).contains(r#""violated-policies":["chat-cost"]"#), "{words:?}");
}

/// A body that fails.
struct Breaks;

impl Body for Breaks {
    type Data = <String as Body>::Data;
    type Error = &'static str;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, &'static str>>> {
        Poll::Ready(Some(Err("broken off")))
    }
}

/// A body of nothing but trailers, with this status.
struct Trailed(Option<&'static str>);

impl Body for Trailed {
    type Data = <String as Body>::Data;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, &'static str>>> {
        let trailers = |status: &str| [("grpc-status".parse().unwrap(), status.parse().unwrap())].into_iter();
        Poll::Ready(self.0.take().map(|status| Ok(Frame::trailers(trailers(status).collect()))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(0)
    }
}
