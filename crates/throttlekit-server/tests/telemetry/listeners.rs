//! Counters of listeners and of Envoy's service are on the page of a running server.

use throttlekit_proto::envoy::rate_limit_service_client::RateLimitServiceClient;
use throttlekit_proto::envoy::{Entry, RateLimitDescriptor, RateLimitRequest};
use throttlekit_server::internals::engine::Backend;
use throttlekit_server::{Server, ServerOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Channel;

use crate::telemetry::FILE;
use crate::telemetry::strict::Page;

pub(crate) async fn http1(address: std::net::SocketAddr, ask: &str) -> String {
    let mut tcp = TcpStream::connect(address).await.unwrap();
    tcp.write_all(format!("{ask} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn connections_requests_and_what_envoy_asked_are_counted_by_listener() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policies.yaml");
    std::fs::write(&path, FILE).unwrap();
    let any = Some(([127, 0, 0, 1], 0).into());
    let mut options = ServerOptions::new(path, Backend::memory());
    (options.http, options.metrics) = (any, any);
    options.limits.handshake_max = std::time::Duration::from_secs(1);
    let server = Server::start(options).await.unwrap();

    for _ in 0..3 {
        assert!(http1(server.http().unwrap(), "GET /healthz").await.starts_with("HTTP/1.1 200"));
    }
    // One that says nothing is closed.
    let mut silent = TcpStream::connect(server.http().unwrap()).await.unwrap();
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or(0), 0);
    let channel = Channel::from_shared(format!("http://{}", server.grpc())).unwrap().connect().await.unwrap();
    let mut envoy = RateLimitServiceClient::new(channel);
    let entry = Entry { key: "nobody".into(), value: "knows".into() };
    let unknown = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    let refund = RateLimitDescriptor { is_negative_hits: true, ..unknown.clone() };
    let ask =
        RateLimitRequest { domain: "edge".into(), descriptors: vec![unknown, refund], ..Default::default() };
    envoy.should_rate_limit(ask).await.unwrap();

    let answer = http1(server.metrics().unwrap(), "GET /metrics").await;
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let page = Page::read(text);
    let at = |series: &str| page.at(&format!("throttlekit_{series}"));
    assert_eq!(at("connections_accepted_total{listener=\"http\"}"), 4.0);
    assert_eq!(at("connections_open{listener=\"http\"}"), 0.0);
    assert_eq!(at("connections_open{listener=\"grpc\"}"), 1.0);
    assert_eq!(at("requests_total{listener=\"http\"}"), 3.0);
    assert_eq!(at("requests_total{listener=\"grpc\"}"), 1.0);
    assert_eq!(at("requests_total{listener=\"metrics\"}"), 1.0);
    assert_eq!(at("requests_shed_total{listener=\"http\"}"), 0.0);
    let closed =
        |reason: &str| at(&format!("connections_closed_total{{listener=\"http\",reason=\"{reason}\"}}"));
    assert_eq!((closed("handshake_timeout"), closed("slow_headers")), (1.0, 0.0));
    assert_eq!(at("connections_refused_total{listener=\"http\",reason=\"peer\"}"), 0.0);
    assert_eq!(at("envoy_requests_total"), 1.0);
    assert_eq!(at("envoy_unmatched_total"), 2.0);
    assert_eq!((at("envoy_refunds_ignored_total"), at("envoy_overrides_ignored_total")), (1.0, 0.0));
    assert_eq!(at("envoy_refused_total"), 0.0);
    drop(envoy);
    server.stop().await;
}
