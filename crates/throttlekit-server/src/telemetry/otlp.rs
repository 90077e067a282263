//! Traces and metrics over OTLP, sent to a collector. The feature `otlp`.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;

use super::ServerTelemetry;
pub use super::spans::{RpcSpans, Spanned};
use crate::server_error::ServerError;

/// Service name for a collector.
const NAME: &str = "throttlekit";
/// Timeout of one export.
const EXPORT_MAX: Duration = Duration::from_secs(5);

/// Exports each RPC as a span, and the counters periodically, to a collector.
pub struct Otlp {
    tracers: SdkTracerProvider,
    meters: SdkMeterProvider,
}

impl Otlp {
    /// Starts exporting to the collector at this address, as `http://localhost:4317`. Needs a tokio runtime, which it
    /// keeps using. An unavailable collector is not an error: what it misses is lost.
    ///
    /// # Errors
    ///
    /// If the address is invalid.
    pub fn start(endpoint: &str, telemetry: &ServerTelemetry) -> Result<Self, ServerError> {
        let (spans, metrics) = exporters(endpoint)?;
        let resource = Resource::builder()
            .with_service_name(NAME)
            .with_attribute(KeyValue::new("service.instance.id", telemetry.options().node_id.clone()))
            .build();
        let tracers =
            SdkTracerProvider::builder().with_batch_exporter(spans).with_resource(resource.clone()).build();
        let meters =
            SdkMeterProvider::builder().with_periodic_exporter(metrics).with_resource(resource).build();
        throttlekit_telemetry::opentelemetry::register(&meters.meter(NAME), &telemetry.counts());
        Ok(Self { tracers, meters })
    }

    /// Validates the address of a collector. Exports nothing. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// If the address is invalid.
    pub fn check(endpoint: &str) -> Result<(), ServerError> {
        exporters(endpoint).map(drop)
    }

    /// Returns a layer that creates a span for each RPC.
    pub fn spans(&self) -> RpcSpans {
        RpcSpans::new(self.tracers.tracer(NAME))
    }

    /// Exports what is pending, and stops. Blocks for up to some seconds: call it on a thread that may block.
    pub fn stop(&self) {
        // What an unavailable collector does not receive is lost.
        let _ = self.tracers.shutdown();
        let _ = self.meters.shutdown();
    }
}

/// Creates exporters, which connect with their first export.
fn exporters(endpoint: &str) -> Result<(SpanExporter, MetricExporter), ServerError> {
    if !endpoint.starts_with("http://") {
        return Err(ServerError::telemetry(format_args!(
            "--otlp `{endpoint}`: expected http://HOST:PORT: the collector is called over gRPC in plaintext"
        )));
    }
    let wrong = |error: opentelemetry_otlp::ExporterBuildError| {
        ServerError::telemetry(format_args!("--otlp `{endpoint}`: {error}"))
    };
    let spans = SpanExporter::builder().with_tonic().with_endpoint(endpoint).with_timeout(EXPORT_MAX);
    let metrics = MetricExporter::builder().with_tonic().with_endpoint(endpoint).with_timeout(EXPORT_MAX);
    Ok((spans.build().map_err(wrong)?, metrics.build().map_err(wrong)?))
}
