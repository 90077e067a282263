//! Signals for operators and alerts: readiness before a stop, and errors that name who is at fault.

use http::HeaderMap;
use hyper::body::Bytes;
use prost::Message;
use tempfile::TempDir;
use throttlekit_proto::v1::{HeartbeatRequest, HeartbeatResponse};
use throttlekit_server::internals::engine::Backend;
use throttlekit_server::{Server, ServerOptions};
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::client::{CHECK, Client, framed};

async fn start() -> (TempDir, Server, Client) {
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("policies.yaml");
    std::fs::write(&policies, crate::target::POLICIES).unwrap();
    let server = Server::start(ServerOptions::new(policies, Backend::memory())).await.unwrap();
    let client = Client::connect(server.grpc()).await.unwrap();
    (folder, server, client)
}

#[tokio::test]
async fn a_message_that_cannot_be_decoded_is_the_clients_fault() {
    let (_folder, server, client) = start().await;
    let code = async |body: Bytes| client.raw(CHECK, &[], body).await.unwrap_err().code();
    let not_protobuf = framed(b"\xff\xff\xff");
    let half = Bytes::from_static(&[0, 0, 0, 0, 9, 1]);
    for (body, why) in [(not_protobuf, "no protobuf"), (half, "half a message"), (Bytes::new(), "no message")]
    {
        assert_eq!(code(body).await, Code::InvalidArgument, "{why}");
    }
    let compressed = Bytes::from_static(&[1, 0, 0, 0, 0]);
    assert_eq!(code(compressed).await, Code::Internal, "as gRPC demands");
    server.stop().await;
}

#[tokio::test]
async fn a_heartbeat_takes_as_many_leases_as_fit_its_message() {
    let (_folder, server, client) = start().await;
    let path = "/throttlekit.v1.RateLimiter/Heartbeat";
    let ids = |count: u32| HeartbeatRequest { lease_ids: (0..count).map(|n| format!("{n:032x}")).collect() };
    let heartbeat: HeartbeatResponse = client.call(path, &[], &ids(1_900)).await.unwrap();
    assert_eq!(heartbeat.reclaimed_ids.len(), 1_900);
    assert!(ids(1_901).encoded_len() < 64 * 1024);
    let refused = client.call::<HeartbeatResponse>(path, &[], &ids(1_901)).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    server.stop().await;
}

#[tokio::test]
async fn health_turns_to_not_serving_while_requests_are_still_answered() {
    let (_folder, server, client) = start().await;
    let health = async || {
        let path = "/grpc.health.v1.Health/Check";
        let told: HealthCheckResponse = client.call(path, &[], &HealthCheckRequest::default()).await.unwrap();
        told.status()
    };
    let turns_to = async |status: ServingStatus| {
        let looks = async {
            while health().await != status {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), looks).await.unwrap();
    };
    turns_to(ServingStatus::Serving).await;
    server.begin_draining();
    turns_to(ServingStatus::NotServing).await;
    assert!(client.check("api", "k").await.is_ok());
    assert!(Client::connect(server.grpc()).await.is_ok(), "also on new connections");
    server.stop().await;
}

#[test]
fn other_errors_stay_what_they_are() {
    let status = |code: &'static str, message: &'static str| {
        let mut response = http::Response::new(());
        response.headers_mut().insert("grpc-status", code.parse().unwrap());
        response.headers_mut().insert("grpc-message", message.parse().unwrap());
        let headers: HeaderMap =
            throttlekit_server::internals::api::grpc::undecodable_is_invalid(response).headers().clone();
        headers["grpc-status"].to_str().unwrap().to_owned()
    };
    assert_eq!(status("13", "failed%20to%20decode%20Protobuf%20message:%20x"), "3");
    assert_eq!(status("13", "the%20store%20answered%20nonsense"), "13");
    assert_eq!(status("5", "failed%20to%20decode%20Protobuf%20message:%20x"), "5");
}
