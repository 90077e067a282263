//! The probe of an unreachable server.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::store::{Probe, StoreError};
use tokio::time::timeout;
use tokio_postgres::types::Type;

use crate::seeded::SeededBug;
use crate::store::Inner;
use crate::store_connections::Param;

/// Minimum timeout of a probe's write; otherwise that of a call. One that hangs is canceled: the next probe needs the
/// connection.
const WRITE_MIN: Duration = Duration::from_millis(500);

impl Inner {
    /// Returns the probe of the circuit breaker.
    ///
    /// A server that responds is back, even if it cannot be used: the next caller gets the reason. But one that serves
    /// reads while its commits hang is not back, so the probe writes. It does so on the only control connection.
    pub(crate) fn into_probe(self: Arc<Self>) -> Probe {
        Box::new(move || {
            let inner = self.clone();
            Box::pin(async move {
                let usable = async {
                    if !inner.is_ready() {
                        return inner.ready().await;
                    }
                    if !inner.builder.seeded.has(SeededBug::ProbeReads) {
                        inner.write_probe().await?;
                    }
                    inner.check().await.map(drop)
                };
                usable.await.err().filter(StoreError::is_outage).map_or(Ok(()), Err)
            })
        })
    }

    async fn write_probe(&self) -> Result<(), StoreError> {
        let (now, handle) = (self.now(), self.handle);
        let params: [Param<'_>; 2] = [(&now, Type::INT8), (&handle, Type::INT8)];
        let max = self.link.deadline.max(WRITE_MIN);
        let held = self.link.control.hold().await?;
        let write = self.link.one_row(held, &self.statements.probe_write, &params);
        let written = timeout(max, write).await.map_err(|_| StoreError::Deadline(max))?;
        written.map(drop).map_err(StoreError::from)
    }
}
