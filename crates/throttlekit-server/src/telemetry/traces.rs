//! The export of traces, if the server was built with it.

use std::sync::Arc;

use super::ServerTelemetry;
#[cfg(feature = "otlp")]
use super::otlp::{Otlp, RpcSpans};
use crate::server_error::ServerError;

/// Exports traces to a collector, if there is one.
pub(crate) struct Traces {
    #[cfg(feature = "otlp")]
    otlp: Option<Arc<Otlp>>,
}

#[cfg(feature = "otlp")]
impl Traces {
    pub(crate) fn start(
        collector: Option<&str>,
        telemetry: &Arc<ServerTelemetry>,
    ) -> Result<Self, ServerError> {
        let start = |endpoint| Otlp::start(endpoint, telemetry).map(Arc::new);
        Ok(Self { otlp: collector.map(start).transpose()? })
    }

    /// Validates the address of a collector. Exports nothing.
    pub(crate) fn check(collector: Option<&str>) -> Result<(), ServerError> {
        collector.map_or(Ok(()), Otlp::check)
    }

    /// Checks whether there is a collector.
    pub(crate) fn are_exported(&self) -> bool {
        self.otlp.is_some()
    }

    /// Returns a layer that creates a span for each request, or does nothing.
    pub(crate) fn spans(&self) -> tower::util::Either<RpcSpans, tower::layer::util::Identity> {
        tower::util::option_layer(self.otlp.as_ref().map(|otlp| otlp.spans()))
    }

    /// Exports what is pending.
    pub(crate) async fn stop(self) {
        if let Some(otlp) = self.otlp {
            // A panic there ends only the export.
            let _ = tokio::task::spawn_blocking(move || otlp.stop()).await;
        }
    }
}

#[cfg(not(feature = "otlp"))]
impl Traces {
    pub(crate) fn start(_: Option<&str>, _: &Arc<ServerTelemetry>) -> Result<Self, ServerError> {
        Ok(Self {})
    }

    pub(crate) fn check(_: Option<&str>) -> Result<(), ServerError> {
        Ok(())
    }

    pub(crate) fn are_exported(&self) -> bool {
        false
    }

    pub(crate) fn spans(&self) -> tower::layer::util::Identity {
        tower::layer::util::Identity::new()
    }

    pub(crate) async fn stop(self) {}
}
