//! The monitor, over a socket.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_proto::v1::monitor_client::MonitorClient;
use throttlekit_proto::v1::monitor_server::MonitorServer;
use throttlekit_proto::v1::{DenialEvent, GetSnapshotRequest, Snapshot, WatchRequest};
use throttlekit_server::internals::api::grpc::MonitorApi;
use throttlekit_server::internals::engine::{Backend, Engine, PolicyCall};
use throttlekit_server::internals::telemetry::{ServerTelemetry, TelemetryOptions};
use throttlekit_server::{StoreOptions, StoreUrl};
use tonic::transport::{Channel, Server};
use tonic::{Code, Streaming};

use crate::telemetry::{load, started_over};

async fn opened(options: TelemetryOptions) -> (Arc<ServerTelemetry>, Engine, MonitorClient<Channel>) {
    opened_over(Backend::memory(), options).await
}

async fn opened_over(
    backend: Backend,
    options: TelemetryOptions,
) -> (Arc<ServerTelemetry>, Engine, MonitorClient<Channel>) {
    let (telemetry, engine, reloader) = started_over(backend, options);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let service = MonitorServer::new(MonitorApi::new(telemetry.clone(), engine.clone(), reloader.0));
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    let channel = Channel::from_shared(format!("http://{at}")).unwrap().connect().await.unwrap();
    (telemetry, engine, MonitorClient::new(channel))
}

async fn look(client: &mut MonitorClient<Channel>) -> Snapshot {
    client.get_snapshot(GetSnapshotRequest {}).await.unwrap().into_inner().snapshot.unwrap()
}

#[tokio::test]
async fn a_snapshot_shows_each_policy_its_keys_slots_and_denials() {
    let (telemetry, engine, mut client) =
        opened(TelemetryOptions { node_id: "n1".into(), ..TelemetryOptions::default() }).await;
    load(&telemetry, &engine).await;
    let snapshot = look(&mut client).await;
    let meta = snapshot.meta.unwrap();
    assert_eq!((meta.window_ms, meta.node_id.as_str()), (60_000, "n1"));
    let names: Vec<_> = snapshot.policies.iter().map(|policy| policy.name.as_str()).collect();
    assert_eq!(names, ["api", "slots", "tried", "quiet", "shared"]);
    let [api, slots, tried, quiet, shared] = &snapshot.policies[..] else { panic!("five policies") };
    assert_eq!((api.kind.as_str(), api.allowed, api.denied, api.limit), ("rate", 3, 2, 3));
    assert_eq!((tried.allowed, tried.denied, tried.shadow_denied), (5, 0, 4));
    assert_eq!((quiet.allowed, quiet.denied, quiet.limit), (0, 0, 9));
    assert!(shared.fair_shares.is_empty() && api.fair_shares.is_empty());
    let latency = api.latency.unwrap();
    assert!(latency.n == 5 && latency.p50_ms > 0.0 && latency.p99_ms >= latency.p50_ms);
    assert!(latency.max_ms >= latency.p99_ms && latency.avg_ms > 0.0);
    assert_eq!((api.top_denied[0].key.as_str(), api.top_denied[0].count), ("al\\u{1b}ice", 2));
    assert_eq!(api.top_requested[0].count, 5);
    assert_eq!((api.denied_by_axis[0].axis.as_str(), api.denied_by_axis[0].count), ("rate", 2));
    assert_eq!((slots.denied_by_axis[0].axis.as_str(), api.guarantees[0].count), ("concurrency", 5));
    assert_eq!((snapshot.guards[0].name.as_str(), snapshot.guards[0].inflight), ("slots", 2));
    assert_eq!(snapshot.recent_denials.len(), 3);
    assert_eq!(snapshot.recent_denials[0].policy, "slots");
    let engine = snapshot.engine.unwrap();
    assert!(engine.serving && engine.kind == "memory" && engine.last_error.is_empty());
    assert_eq!(snapshot.config.unwrap().version_hash.len(), 12);

    let json: serde_json::Value = serde_json::from_str(&snapshot.raw_json).unwrap();
    assert_eq!(json["policies"][0]["denied"], 2);
    assert_eq!(json["recentDenials"].as_array().unwrap().len(), 3);
    assert_eq!(json["policies"][0]["deniedByAxis"]["rate"], 2);
}

#[tokio::test]
async fn tenants_are_shown_with_weight_use_and_share_those_that_used_most_first() {
    let (telemetry, engine, mut client) = opened(TelemetryOptions::default()).await;
    let ask = |key, cost| PolicyCall { policy: "shared", key, others: &[], cost };
    for (tenant, cost) in [(b"bob\x07", 5), (b"acme", 30)] as [(&[u8], u64); 2] {
        assert!(engine.check(ask(tenant, cost)).await.unwrap().decision.allowed);
    }
    assert!(telemetry.flush(Duration::from_secs(20)));
    let snapshot = look(&mut client).await;
    let shared = snapshot.policies.iter().find(|policy| policy.name == "shared").unwrap();
    let seen = shared.fair_shares.iter();
    let seen: Vec<_> =
        seen.map(|share| (share.tenant.as_str(), share.weight, share.used, share.guaranteed)).collect();
    assert_eq!(seen, [("acme", 3, 30, 75), ("bob\\u{7}", 1, 5, 25)]);
    let json: serde_json::Value = serde_json::from_str(&snapshot.raw_json).unwrap();
    let listed =
        json["policies"].as_array().unwrap().iter().find(|policy| policy["name"] == "shared").unwrap();
    assert_eq!(listed["fairShares"][0]["guaranteed"], 75);
}

#[tokio::test]
async fn tenants_are_hashed_where_keys_are() {
    let (telemetry, engine, mut client) =
        opened(TelemetryOptions { hash_keys: true, ..TelemetryOptions::default() }).await;
    engine.check(PolicyCall { policy: "shared", key: b"acme", others: &[], cost: 1 }).await.unwrap();
    assert!(telemetry.flush(Duration::from_secs(20)));
    let snapshot = look(&mut client).await;
    let shared = snapshot.policies.iter().find(|policy| policy.name == "shared").unwrap();
    assert!(shared.fair_shares.len() == 1 && shared.fair_shares[0].tenant.starts_with('#'));
    assert!(!format!("{snapshot:?}").contains("acme"));
}

#[tokio::test]
async fn the_stores_last_failure_is_shown_with_its_time() {
    let nowhere =
        StoreUrl::parse("redis://127.0.0.1:1").unwrap().connect(&StoreOptions::default()).await.unwrap();
    let (_telemetry, engine, mut client) = opened_over(nowhere, TelemetryOptions::default()).await;
    assert!(look(&mut client).await.engine.unwrap().last_error.is_empty(), "nobody has asked yet");
    let answer =
        engine.check(PolicyCall { policy: "api", key: b"alice", others: &[], cost: 1 }).await.unwrap();
    assert!(!answer.decision.allowed, "closed, since the store is away");
    let said = look(&mut client).await.engine.unwrap().last_error;
    let (at, why) = said.split_once(' ').unwrap();
    assert!(at.len() == 20 && at.starts_with("20") && at.ends_with('Z'), "{said}");
    assert!(why.starts_with("the store "), "{said}");
    assert!(!said.contains("alice"), "{said}");
}

#[tokio::test]
async fn hashed_keys_show_nothing_of_themselves() {
    let (telemetry, engine, mut client) =
        opened(TelemetryOptions { hash_keys: true, ..TelemetryOptions::default() }).await;
    load(&telemetry, &engine).await;
    let snapshot = look(&mut client).await;
    assert!(snapshot.policies[0].top_denied[0].key.starts_with('#'));
    assert!(!format!("{snapshot:?}").contains("ice"));
}

#[tokio::test]
async fn a_watch_hears_of_its_policy_alone_and_ends_when_the_server_stops() {
    let (telemetry, engine, mut client) = opened(TelemetryOptions::default()).await;
    let mut one = client.watch(WatchRequest { policy: "api".into() }).await.unwrap().into_inner();
    let mut all = client.watch(WatchRequest::default()).await.unwrap().into_inner();
    load(&telemetry, &engine).await;
    let heard = [next(&mut one).await.unwrap(), next(&mut one).await.unwrap()];
    for denial in heard {
        assert_eq!(
            (denial.policy.as_str(), denial.key.as_str(), denial.axis.as_str()),
            ("api", "al\\u{1b}ice", "rate")
        );
        assert!(denial.limit == 3 && denial.remaining == 0 && denial.at > 0);
        assert!((1..=86_400_000).contains(&denial.retry_after_ms));
    }
    let mut policies = Vec::new();
    for _ in 0..3 {
        policies.push(next(&mut all).await.unwrap().policy);
    }
    assert_eq!(policies, ["api", "api", "slots"]);
    telemetry.close();
    assert_eq!((next(&mut one).await, next(&mut all).await), (None, None));
}

async fn next(stream: &mut Streaming<throttlekit_proto::v1::WatchResponse>) -> Option<DenialEvent> {
    let message = tokio::time::timeout(Duration::from_secs(20), stream.message()).await.expect("in time");
    message.unwrap().map(|told| told.denial.unwrap())
}

#[tokio::test]
async fn the_sixty_fifth_watcher_is_refused_and_has_a_place_when_one_leaves() {
    let (_telemetry, _engine, mut client) = opened(TelemetryOptions::default()).await;
    let mut all = Vec::new();
    for _ in 0..64 {
        all.push(client.watch(WatchRequest::default()).await.unwrap());
    }
    let refused = client.watch(WatchRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    all.pop();
    // The server learns of it when the reset of the stream arrives.
    for _ in 0..200 {
        if client.watch(WatchRequest::default()).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the place was not given back");
}

#[tokio::test]
async fn one_that_does_not_read_holds_up_nobody() {
    let (telemetry, engine, mut client) = opened(TelemetryOptions::default()).await;
    let _asleep = client.watch(WatchRequest::default()).await.unwrap();
    let mut awake = client.watch(WatchRequest { policy: "slots".into() }).await.unwrap().into_inner();
    for _ in 0..20_000 {
        engine.check(PolicyCall { policy: "api", key: b"x", others: &[], cost: 1 }).await.unwrap();
    }
    assert!(telemetry.flush(Duration::from_secs(20)));
    load(&telemetry, &engine).await;
    assert_eq!(next(&mut awake).await.unwrap().policy, "slots");
    let json: serde_json::Value = serde_json::from_str(&look(&mut client).await.raw_json).unwrap();
    assert!(json["watchDropped"].as_u64().unwrap() > 0);
}
