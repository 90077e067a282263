//! Deletion of idle rows.

use std::sync::{Arc, Weak};
use std::time::Duration;

use throttlekit::store::StoreError;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::Type;

use crate::PostgresStore;
use crate::error::from_server;
use crate::store::Inner;

/// Rows deleted by one statement: few enough that it is short, and locks few rows while it runs.
const BATCH: u64 = 1_000;
/// Timeout of one statement, which may read the whole table.
const BATCH_MAX: Duration = Duration::from_secs(30);
/// Maximum number of rows deleted by one round of the task.
const ROUND_MAX: u64 = 1_000_000;

impl PostgresStore {
    /// Deletes up to `rows_max` idle rows, and returns their number. Any number of processes may sweep at once.
    ///
    /// Waits for no row, and makes no decision wait longer than a batch takes. Not subject to the store's deadline.
    pub async fn sweep(&self, rows_max: u64) -> Result<u64, StoreError> {
        let inner = self.inner.clone();
        self.inner.builder.background.run_attached(async move { inner.sweep(rows_max).await }).await?
    }

    /// Sweeps at this interval, until the store and all its clones are dropped. The next round makes up for a failed
    /// one.
    pub fn sweep_every(&self, wait: Duration) {
        self.inner.builder.background.spawn(sweep_until_dropped(Arc::downgrade(&self.inner), wait));
    }
}

async fn sweep_until_dropped(inner: Weak<Inner>, wait: Duration) {
    loop {
        sleep(wait).await;
        let Some(inner) = inner.upgrade() else { return };
        let _ = inner.sweep(ROUND_MAX).await;
    }
}

impl Inner {
    async fn sweep(&self, rows_max: u64) -> Result<u64, StoreError> {
        let mut swept = 0;
        while swept < rows_max {
            let batch = BATCH.min(rows_max - swept);
            let deleted = timeout(BATCH_MAX, self.sweep_batch(batch)).await;
            let deleted = deleted.unwrap_or(Err(StoreError::Deadline(BATCH_MAX)))?;
            swept += deleted;
            if deleted < batch {
                break;
            }
        }
        Ok(swept)
    }

    async fn sweep_batch(&self, batch: u64) -> Result<u64, StoreError> {
        let held = self.hold().await?;
        let wrong = |error: tokio_postgres::Error| from_server(&error, BATCH_MAX);
        let begin = format!(
            "BEGIN; SET LOCAL statement_timeout = '{}ms'; SET LOCAL enable_seqscan = on",
            BATCH_MAX.as_millis()
        );
        held.client().batch_execute(&begin).await.map_err(wrong)?;
        let text = format!("SELECT {}.sweep($1, $2, $3)", self.schema.quoted());
        let (grace, batch) = (self.builder.grace.as_micros() as i64, batch as i64);
        let params: [crate::store_connections::Param<'_>; 3] =
            [(&self.now(), Type::INT8), (&grace, Type::INT8), (&batch, Type::INT8)];
        let rows = held.client().query_typed(&text, &params).await.map_err(wrong)?;
        held.client().batch_execute("COMMIT").await.map_err(wrong)?;
        held.give_back();
        Ok(rows[0].get::<_, i64>(0) as u64)
    }
}
