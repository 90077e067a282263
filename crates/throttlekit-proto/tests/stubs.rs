//! Clients call servers, without a socket: a server is a service that a client takes for its transport.

use throttlekit_proto::v1::fleet_client::FleetClient;
use throttlekit_proto::v1::fleet_server::{Fleet, FleetServer};
use throttlekit_proto::v1::monitor_client::MonitorClient;
use throttlekit_proto::v1::monitor_server::{Monitor, MonitorServer};
use throttlekit_proto::v1::{
    DenialEvent, GetSnapshotRequest, GetSnapshotResponse, Lease, ReserveRequest, ReserveResponse,
    WatchRequest, WatchResponse,
};
use throttlekit_proto::{envoy, v1};
use tonic::codegen::tokio_stream;
use tonic::{Code, Request, Response, Status};

/// Lends what is wanted; tells of three denials.
struct Stub;

#[tonic::async_trait]
impl Fleet for Stub {
    async fn reserve(&self, request: Request<ReserveRequest>) -> Result<Response<ReserveResponse>, Status> {
        let lease = Lease { capacity: request.into_inner().wants, ..Default::default() };
        Ok(Response::new(ReserveResponse { lease: Some(lease) }))
    }
}

#[tonic::async_trait]
impl Monitor for Stub {
    type WatchStream = tokio_stream::Iter<std::vec::IntoIter<Result<WatchResponse, Status>>>;

    async fn get_snapshot(
        &self,
        _: Request<GetSnapshotRequest>,
    ) -> Result<Response<GetSnapshotResponse>, Status> {
        Err(Status::unauthenticated("who are you?"))
    }

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let policy = request.into_inner().policy;
        let denial = |at| DenialEvent { at, policy: policy.clone(), ..Default::default() };
        let events: Vec<_> = (1..=3).map(|at| Ok(WatchResponse { denial: Some(denial(at)) })).collect();
        Ok(Response::new(tokio_stream::iter(events)))
    }
}

#[tokio::test]
async fn an_ask_reaches_the_server_and_its_answer_the_client() {
    let mut client = FleetClient::new(FleetServer::new(Stub));
    let asked = ReserveRequest { wants: 64, ..Default::default() };
    let lease = client.reserve(asked).await.expect("an answer").into_inner().lease;
    assert_eq!(lease.map(|lease| lease.capacity), Some(64));
}

#[tokio::test]
async fn a_stream_brings_every_event_in_order() {
    let mut client = MonitorClient::new(MonitorServer::new(Stub));
    let mut events =
        client.watch(WatchRequest { policy: "api".into() }).await.expect("a stream").into_inner();
    let mut seen = Vec::new();
    while let Some(event) = events.message().await.expect("an event") {
        seen.extend(event.denial.map(|denial| (denial.policy, denial.at)));
    }
    assert_eq!(seen, [("api".into(), 1), ("api".into(), 2), ("api".into(), 3)]);
}

#[tokio::test]
async fn a_refusal_keeps_its_status() {
    let mut client = MonitorClient::new(MonitorServer::new(Stub));
    let refused = client.get_snapshot(GetSnapshotRequest {}).await.expect_err("a refusal");
    assert_eq!(refused.code(), Code::Unauthenticated);
}

#[test]
fn services_have_the_names_that_clients_call() {
    assert_eq!(v1::rate_limiter_server::SERVICE_NAME, "throttlekit.v1.RateLimiter");
    assert_eq!(v1::fleet_server::SERVICE_NAME, "throttlekit.v1.Fleet");
    assert_eq!(v1::monitor_server::SERVICE_NAME, "throttlekit.v1.Monitor");
    assert_eq!(envoy::rate_limit_service_server::SERVICE_NAME, "envoy.service.ratelimit.v3.RateLimitService");
}
