//! The golden vectors of the first implementation, all eighteen suites, over the wire (guarantee `same-everywhere`).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use throttlekit::clock::ManualClock;
use throttlekit::leasing::{Leasing, Margin};
use throttlekit::rate::Timestamp;
use throttlekit::store::{DebitId, random_name};
use throttlekit::{Call, Decision, Limit, Retry, SharedLimiter};
use throttlekit_client::{Client, RemoteStore};
use throttlekit_conformance::{CoreSubject, Spec, Subject, golden};
use throttlekit_core::rate::Cadence;
use throttlekit_proto::v1::fleet_server::{Fleet, FleetServer};
use throttlekit_proto::v1::{Lease, ReserveRequest, ReserveResponse};
use throttlekit_server::internals::engine::Backend;
use tokio::net::TcpListener;
use tonic::{Request, Response, Status};

use crate::common::{Running, client_of, runtime};

/// Returns a suite's limit in the syntax of a policy file.
fn policy(spec: &Spec) -> String {
    let ms = |length: &Duration| format!("{}ms", length.as_millis());
    let every = |cadence: &Cadence| match cadence {
        Cadence::Every { length, .. } => ms(length),
        other => panic!("no suite has {other:?}"),
    };
    match spec {
        Spec::Gcra { units, period, burst } => {
            format!("rate: {{algorithm: gcra, limit: {units}, per: {}, burst: {burst}}}", ms(period))
        }
        Spec::TokenBucket { capacity, units, period } => {
            let per = ms(period);
            format!("rate: {{algorithm: token_bucket, limit: {units}, per: {per}, burst: {capacity}}}")
        }
        Spec::Window { limit, cadence } => {
            format!("rate: {{algorithm: fixed_window, limit: {limit}, per: {}}}", every(cadence))
        }
        Spec::SlidingWindow { limit, length, buckets, .. } => {
            let per = ms(length);
            format!("rate: {{algorithm: sliding_window, limit: {limit}, per: {per}, buckets: {buckets}}}")
        }
        Spec::SlidingLog { limit, length } => {
            format!("rate: {{algorithm: sliding_log, limit: {limit}, per: {}}}", ms(length))
        }
        Spec::Budget { limit, cadence } => format!("cost: {{budget: {limit}, per: {}}}", every(cadence)),
        other => panic!("no suite has {other:?}"),
    }
}

/// The wait of the first implementation's sliding window is a hint, and refuted elsewhere. The server's is
/// exact.
fn exact_wait(suite: &golden::Golden) -> Option<CoreSubject> {
    let Spec::SlidingWindow { limit, length, buckets, .. } = suite.spec else { return None };
    let exact = Spec::SlidingWindow { limit, length, buckets, exact: true };
    Some(CoreSubject::new(exact.limit().expect("a limit")))
}

#[test]
fn rate_and_budget_suites_match_field_for_field_over_the_wire() {
    let suites = golden::suites();
    assert_eq!(suites.len(), 12);
    let entry =
        |(index, suite): (usize, &golden::Golden)| format!("  p{index}: {{{}}}\n", policy(&suite.spec));
    let policies: String = suites.iter().enumerate().map(entry).collect();
    let clock = ManualClock::at(Timestamp::EPOCH);
    let server = Running::start(&policies, Backend::memory_with_clock(Arc::new(clock.clone())));
    runtime().block_on(async {
        let client = server.client().build().unwrap();
        let mut asked = 0;
        for (index, suite) in suites.iter().enumerate() {
            let limiter = client.policy(&format!("p{index}"));
            let (mut exact, stream) = (exact_wait(suite), random_name());
            for (number, ask) in suite.asks.iter().enumerate() {
                let now = Timestamp::from_millis(ask.now);
                clock.set(now);
                let answer = match suite.spec {
                    Spec::Budget { .. } => {
                        let id = DebitId { stream, number: number as u64 + 1 };
                        limiter.debit((&suite.key, ask.cost), id).await
                    }
                    _ => limiter.check(Call::by(&suite.key).cost(ask.cost)).await,
                };
                let mut expected = ask.expect;
                if let Some(exact) = &mut exact {
                    let wait = exact.check(&suite.key, ask.cost, now).retry_after.wait_ms().unwrap();
                    assert!(wait >= expected.retry_after_ms, "a hint is never too long");
                    expected.retry_after_ms = wait;
                }
                let told = answer.unwrap_or_else(|error| panic!("{}: {error}", suite.name)).decision;
                assert_eq!(golden_of(&told), expected, "{}, ask {number}", suite.name);
                asked += 1;
            }
        }
        assert_eq!(asked, suites.iter().map(|suite| suite.asks.len()).sum::<usize>());
    });
}

/// If waiting never helps, the first implementation reports a wait anyway.
fn golden_of(decision: &Decision) -> golden::GoldenDecision {
    assert_ne!(decision.retry_after, Retry::Never, "no suite asks for more than its limit holds");
    golden::GoldenDecision::of(decision).expect("a wait")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSuite {
    name: String,
    limit: u64,
    ttl_ms: u64,
    window_coupled: bool,
    events: Vec<Event>,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Event {
    Grant { capacity: i64, expires_at: i64 },
    Spend { now: u64, cost: u64, expect: Expect },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expect {
    needs_refresh: bool,
    decision: Option<golden::GoldenDecision>,
}

/// Grants that wait to be reserved. `None`: the server is unavailable.
#[derive(Clone, Default)]
struct Script {
    grants: Arc<Mutex<VecDeque<Lease>>>,
}

#[tonic::async_trait]
impl Fleet for Script {
    async fn reserve(&self, request: Request<ReserveRequest>) -> Result<Response<ReserveResponse>, Status> {
        assert!(request.into_inner().wants >= 1);
        let lease = self.grants.lock().unwrap().pop_front().ok_or_else(|| Status::unavailable("away"))?;
        Ok(Response::new(ReserveResponse { lease: Some(lease) }))
    }
}

async fn serve(script: Script) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder().add_service(FleetServer::new(script));
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

fn spender(
    client: &Client,
    suite: &LeaseSuite,
    clock: &ManualClock,
) -> SharedLimiter<RemoteStore, ManualClock> {
    let window = Limit::fixed_window(suite.limit, Duration::from_millis(suite.ttl_ms));
    // Time is counted here and not measured, so no margin is subtracted; and units are reserved when they are
    // needed.
    let leasing = Leasing::new().margin(Margin::NONE).refill_at_percent(0).return_after(None);
    let leasing = if suite.window_coupled { leasing } else { leasing.carry(1) };
    let builder = SharedLimiter::builder(client.store(), &suite.name, window.unwrap());
    builder.leased_with(leasing).clock(clock.clone()).build().unwrap()
}

#[test]
fn lease_suites_are_spent_field_for_field_from_grants_that_crossed_the_wire() {
    let file: serde_json::Value = serde_json::from_str(golden::TEXT).unwrap();
    let all = file["suites"].as_array().unwrap().iter().filter(|suite| suite["primitive"] == "lease");
    let suites: Vec<LeaseSuite> = all.map(|suite| LeaseSuite::deserialize(suite).unwrap()).collect();
    assert_eq!(suites.len(), 6);
    assert_eq!(suites.iter().filter(|suite| !suite.window_coupled).count(), 1);
    runtime().block_on(async {
        let script = Script::default();
        let client = client_of(serve(script.clone()).await).build().unwrap();
        for suite in &suites {
            play(suite, &script, &client).await;
        }
    });
}

async fn play(suite: &LeaseSuite, script: &Script, client: &Client) {
    let clock = ManualClock::at(Timestamp::EPOCH);
    let limiter = spender(client, suite, &clock);
    let mut granted: Option<(i64, i64)> = None;
    for (index, event) in suite.events.iter().enumerate() {
        match event {
            Event::Grant { capacity, expires_at } => granted = Some((*capacity, *expires_at)),
            Event::Spend { now, cost, expect } => {
                clock.set(Timestamp::from_millis(*now));
                // A grant is available at the spend that needs it.
                if let Some((capacity, expiry_ms)) = granted.take() {
                    script.grants.lock().unwrap().push_back(Lease {
                        capacity,
                        expiry_ms,
                        lease_for_ms: expiry_ms - *now as i64,
                        limit: suite.limit as i64,
                        return_id: format!("{index:032x}"),
                        ..Lease::default()
                    });
                }
                let answer = limiter.check(Call::by("k").cost(*cost)).await.unwrap();
                assert_eq!(answer.outage.is_some(), expect.needs_refresh, "{}, event {index}", suite.name);
                let told = golden::GoldenDecision::of(&answer.decision);
                match expect.decision {
                    Some(expected) => assert_eq!(told, Some(expected), "{}, event {index}", suite.name),
                    None => assert!(!answer.decision.allowed, "{}, event {index}", suite.name),
                }
            }
        }
    }
    assert!(script.grants.lock().unwrap().is_empty(), "{}: every grant was reserved", suite.name);
}
