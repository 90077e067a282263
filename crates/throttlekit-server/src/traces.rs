//! Spans of what a server is asked, where it was built to send them.

use std::sync::Arc;

use crate::seeing::Hub;
use crate::server::ServerOptions;

/// Who is sent traces, if anyone.
pub(crate) struct Traces {
    #[cfg(feature = "otlp")]
    otlp: Option<Arc<crate::seeing::otlp::Otlp>>,
}

#[cfg(feature = "otlp")]
impl Traces {
    pub(crate) fn start(options: &ServerOptions, hub: &Arc<Hub>) -> Result<Self, String> {
        let start = |endpoint: &String| crate::seeing::otlp::Otlp::start(endpoint, hub).map(Arc::new);
        let otlp = options.otlp.as_ref().map(start).transpose().map_err(|error| format!("--otlp {error}"))?;
        Ok(Self { otlp })
    }

    /// A layer that makes a span of each request, or does nothing.
    pub(crate) fn spans(
        &self,
    ) -> tower::util::Either<crate::seeing::otlp::RpcSpans, tower::layer::util::Identity> {
        tower::util::option_layer(self.otlp.as_ref().map(|otlp| otlp.spans()))
    }

    /// Sends what waits.
    pub(crate) async fn stop(self) {
        if let Some(otlp) = self.otlp {
            // A panic there ends nothing but the sending.
            let _ = tokio::task::spawn_blocking(move || otlp.stop()).await;
        }
    }
}

#[cfg(not(feature = "otlp"))]
impl Traces {
    pub(crate) fn start(_: &ServerOptions, _: &Arc<Hub>) -> Result<Self, String> {
        Ok(Self {})
    }

    pub(crate) fn spans(&self) -> tower::layer::util::Identity {
        tower::layer::util::Identity::new()
    }

    pub(crate) async fn stop(self) {}
}
