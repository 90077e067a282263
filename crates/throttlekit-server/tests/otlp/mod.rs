//! A span of each RPC and the counters, as a collector receives them over a socket.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

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
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use throttlekit_proto::v1::CheckRequest;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::rate_limiter_server::RateLimiterServer;
use throttlekit_server::internals::api::grpc::RateLimiterApi;
use throttlekit_server::internals::engine::{Backend, Engine, EngineOptions};
use throttlekit_server::internals::telemetry::otlp::Otlp;
use throttlekit_server::internals::telemetry::{ServerTelemetry, TelemetryOptions};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

/// Keeps what it is sent.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    metrics: Arc<Mutex<Vec<ExportMetricsServiceRequest>>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.spans.lock().unwrap().push(request.into_inner());
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.metrics.lock().unwrap().push(request.into_inner());
        Ok(Response::new(Default::default()))
    }
}

async fn bound() -> (TcpIncoming, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    (TcpIncoming::from(listener), at)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_is_sent_a_span_of_each_rpc_and_the_counters() {
    let collector = Collector::default();
    let (incoming, collects) = bound().await;
    tokio::spawn(
        Server::builder()
            .add_service(TraceServiceServer::new(collector.clone()))
            .add_service(MetricsServiceServer::new(collector.clone()))
            .serve_with_incoming(incoming),
    );

    let telemetry =
        ServerTelemetry::start(TelemetryOptions { node_id: "n1".into(), ..TelemetryOptions::default() })
            .unwrap();
    let otlp = Otlp::start(&format!("http://{collects}"), &telemetry).unwrap();
    let file = serde_json::from_value(serde_json::json!({
        "version": 1, "policies": { "api": { "rate": { "limit": 1, "per": "1m" } } }
    }));
    let options = EngineOptions { observer: telemetry.clone(), ..EngineOptions::over(Backend::memory()) };
    let engine = Engine::start(options, file.unwrap()).unwrap();
    let (incoming, serves) = bound().await;
    let service = RateLimiterServer::new(RateLimiterApi::new(engine));
    tokio::spawn(Server::builder().layer(otlp.spans()).add_service(service).serve_with_incoming(incoming));

    let channel = Channel::from_shared(format!("http://{serves}")).unwrap().connect().await.unwrap();
    let mut client = RateLimiterClient::new(channel);
    for policy in ["api", "api", "none"] {
        let ask = CheckRequest { policy: policy.into(), key: "alice".into(), ..Default::default() };
        let mut request = Request::new(ask);
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        request.metadata_mut().insert("traceparent", parent.parse().unwrap());
        assert_eq!(client.check(request).await.is_ok(), policy == "api");
    }
    tokio::task::spawn_blocking(move || otlp.stop()).await.unwrap();

    let spans = spans(&collector);
    let told =
        |attributes: &BTreeMap<String, String>, name: &str| attributes.get(name).cloned().unwrap_or_default();
    let admission = |at: usize| {
        ["allowed", "policy", "guarantee", "binding_axis"]
            .map(|name| told(&spans[at], &format!("throttlekit.{name}")))
    };
    assert_eq!(spans.len(), 3);
    assert_eq!(admission(0), ["true", "api", "exact", ""]);
    assert_eq!(admission(1), ["false", "api", "exact", "rate"]);
    assert_eq!(admission(2), ["", "", "", ""]);
    assert_eq!(told(&spans[2], "rpc.response.status_code"), "5");
    for span in &spans {
        assert_eq!(told(span, "name"), "throttlekit.v1.RateLimiter/Check");
        assert_eq!(told(span, "trace"), "0af7651916cd43dd8448eb211c80319c");
    }
    let metrics = format!("{:?}", collector.metrics.lock().unwrap());
    assert!(metrics.contains("throttlekit.decisions") && metrics.contains("throttlekit.denied_by_axis"));
    let everything = format!("{:?}{metrics}", collector.spans.lock().unwrap());
    assert!(!everything.contains("alice"));
}

/// Attributes of all spans in the order of their starts, with their names and traces.
fn spans(collector: &Collector) -> Vec<BTreeMap<String, String>> {
    let sent = collector.spans.lock().unwrap();
    let scopes = sent.iter().flat_map(|request| &request.resource_spans).flat_map(|of| &of.scope_spans);
    let mut spans: Vec<_> = scopes.flat_map(|scope| &scope.spans).collect();
    spans.sort_by_key(|span| span.start_time_unix_nano);
    let each = spans.into_iter().map(|span| {
        let trace = span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let said = span.attributes.iter().map(|attribute| {
            let value = match attribute.value.clone().and_then(|value| value.value) {
                Some(Value::StringValue(text)) => text,
                Some(Value::BoolValue(said)) => said.to_string(),
                other => panic!("{other:?} is neither text nor a bool"),
            };
            (attribute.key.clone(), value)
        });
        said.chain([("name".into(), span.name.clone()), ("trace".into(), trace)]).collect()
    });
    each.collect()
}
