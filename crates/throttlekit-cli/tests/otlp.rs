//! `serve --otlp`: what a served policy decided, as a collector receives it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::Serving;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use throttlekit_proto::v1::CheckRequest;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

const POLICIES: &str = "version: 1\npolicies:\n  api: {rate: {limit: 1, per: 1d, algorithm: fixed_window}}\n";

/// Keeps what it is sent, as text.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<String>>>,
    metrics: Arc<Mutex<String>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let sent = request.into_inner().resource_spans;
        let spans = sent.iter().flat_map(|of| &of.scope_spans).flat_map(|scope| &scope.spans);
        self.spans.lock().unwrap().extend(spans.map(|span| format!("{} {:?}", span.name, span.attributes)));
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        *self.metrics.lock().unwrap() += &format!("{:?}", request.into_inner());
        Ok(Response::new(Default::default()))
    }
}

async fn collecting() -> (Collector, SocketAddr) {
    let collector = Collector::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let server = Server::builder()
        .add_service(TraceServiceServer::new(collector.clone()))
        .add_service(MetricsServiceServer::new(collector.clone()));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    (collector, at)
}

async fn get(address: &str, path: &str) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.read_to_end(&mut Vec::new()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_served_policy_decides_reaches_a_collector() {
    let (collector, collects) = collecting().await;
    let url = format!("http://{collects}");
    let serving = tokio::task::spawn_blocking(move || Serving::start(POLICIES, &["--otlp", &url]));
    let serving = serving.await.unwrap();
    let channel = Channel::from_shared(format!("http://{}", serving.at("grpc"))).unwrap();
    let mut client = RateLimiterClient::new(channel.connect().await.unwrap());
    for allowed in [true, false] {
        let ask = CheckRequest { policy: "api".into(), key: "alice".into(), ..Default::default() };
        assert_eq!(client.check(ask).await.unwrap().into_inner().decision.unwrap().allowed, allowed);
    }
    for path in ["/v1/forward-auth/api?key=alice", "/readyz", "/whatever-a-stranger-writes"] {
        get(serving.at("http"), path).await;
    }
    // What waits is sent when it stops.
    tokio::task::spawn_blocking(move || serving.stop()).await.unwrap();

    let mut spans = collector.spans.lock().unwrap().clone();
    spans.sort();
    let named = |name: &str| spans.iter().filter(|span| span.starts_with(&format!("{name} "))).count();
    assert_eq!(named("throttlekit.v1.RateLimiter/Check"), 2, "{spans:#?}");
    assert_eq!((named("v1/forward-auth"), named("unknown"), spans.len()), (1, 1, 4), "{spans:#?}");
    let denied = spans.iter().filter(|span| span.contains("BoolValue(false)") && span.contains("\"rate\""));
    assert_eq!(denied.count(), 2, "{spans:#?}");
    let metrics = collector.metrics.lock().unwrap().clone();
    assert!(metrics.contains("throttlekit.decisions") && metrics.contains("\"api\""), "{metrics}");
    assert!(!format!("{spans:?}{metrics}").contains("alice"));
}

/// A collector that is away costs nobody an answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_holds_up_nobody() {
    // It takes connections, and never says a word.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", mute.local_addr().unwrap());
    let start = move || Serving::start(POLICIES, &["--otlp", &address]);
    let serving = tokio::task::spawn_blocking(start).await.unwrap();
    let channel = Channel::from_shared(format!("http://{}", serving.at("grpc"))).unwrap();
    let mut client = RateLimiterClient::new(channel.connect().await.unwrap());
    let ask = CheckRequest { policy: "api".into(), key: "alice".into(), ..Default::default() };
    let answer = tokio::time::timeout(Duration::from_secs(10), client.check(ask)).await.unwrap();
    assert!(answer.unwrap().into_inner().decision.unwrap().allowed);
    tokio::task::spawn_blocking(move || serving.stop()).await.unwrap();
}
