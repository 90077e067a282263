//! Finding out whether a server that was away works again.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::store::{Probe, StoreError};
use tokio::time::timeout;
use tokio_postgres::types::Type;

use crate::seeded::SeededBug;
use crate::store::Inner;
use crate::store_connections::Param;

/// A probe's write may take as long as a call, and at least this long. One that hangs is cancelled: the next probe
/// needs the connection.
const WRITE_MIN: Duration = Duration::from_millis(500);

impl Inner {
    /// The probe of the circuit breaker.
    ///
    /// A server that answers is back, also where it cannot be used: the next caller is told why. But one that answers
    /// reads and whose commits hang is not back: so the probe writes. It does so on the control connection, of which
    /// there is one.
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
