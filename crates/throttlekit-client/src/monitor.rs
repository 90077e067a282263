//! The state of a server, and its denials as they happen.

use throttlekit::StoreError;
use throttlekit::rate::Timestamp;
use throttlekit_proto::v1::monitor_client::MonitorClient;
use throttlekit_proto::v1::{DenialEvent, GetSnapshotRequest, WatchRequest, WatchResponse};
use tonic::{Status, Streaming};

use crate::Client;
use crate::failure::{Failure, lost};

/// Maximum size of a snapshot, in bytes.
const SNAPSHOT_BYTES_MAX: usize = 64 << 20;

impl Client {
    /// Returns the state of the server in use as JSON: its policies, concurrency limits, latest denials, store and
    /// configuration. The caller needs the endpoint `monitor`.
    pub async fn snapshot_json(&self) -> Result<String, StoreError> {
        let call = |channel, message| async move {
            MonitorClient::new(channel)
                .max_decoding_message_size(SNAPSHOT_BYTES_MAX)
                .get_snapshot(message)
                .await
        };
        let response = self.ask(GetSnapshotRequest {}, call).await?;
        let snapshot =
            response.snapshot.ok_or_else(|| StoreError::bad_state("the response has no snapshot"))?;
        Ok(snapshot.raw_json)
    }

    /// Subscribes to denials of this policy at the server in use; of all policies if the name is empty. The caller needs
    /// the endpoint `monitor`. Under load the server drops events.
    pub async fn watch(&self, policy: &str) -> Result<Denials, StoreError> {
        let call = |channel, message| async move { MonitorClient::new(channel).watch(message).await };
        Ok(Denials { stream: self.ask(WatchRequest { policy: policy.into() }, call).await? })
    }
}

/// Denials of a server as they happen, from [`Client::watch`]. Dropped, it unsubscribes.
#[derive(Debug)]
pub struct Denials {
    stream: Streaming<WatchResponse>,
}

impl Denials {
    /// Waits for the next denial, without a deadline. `None` once the server has ended the stream. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Denial, StoreError>> {
        loop {
            match self.stream.message().await {
                Ok(Some(response)) => match response.denial {
                    Some(event) => return Some(Ok(event.into())),
                    // An event of a kind that this client does not support.
                    None => continue,
                },
                Ok(None) => return None,
                Err(status) => return Some(Err(error(status))),
            }
        }
    }
}

fn error(status: Status) -> StoreError {
    lost(&status).unwrap_or_else(|| Failure::from(status).into())
}

/// One denial.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denial {
    /// Time of the denial, by the server's clock, in whole milliseconds.
    pub at: Timestamp,
    /// Policy that denied.
    pub policy: String,
    /// Key that was denied. Hashed if the server is configured so.
    pub key: String,
    /// Axis that denied.
    pub axis: String,
    /// Maximum of the limit.
    pub limit: u64,
    /// Units that were left.
    pub remaining: u64,
    /// Wait that the caller was given, in milliseconds.
    pub retry_after_ms: u64,
}

impl From<DenialEvent> for Denial {
    fn from(event: DenialEvent) -> Self {
        let unsigned = |wire: i64| u64::try_from(wire).unwrap_or(0);
        Self {
            at: Timestamp::from_nanos(unsigned(event.at).saturating_mul(1_000_000)),
            policy: event.policy,
            key: event.key,
            axis: event.axis,
            limit: unsigned(event.limit),
            remaining: unsigned(event.remaining),
            retry_after_ms: unsigned(event.retry_after_ms),
        }
    }
}
