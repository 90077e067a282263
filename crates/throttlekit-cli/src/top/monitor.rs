//! Snapshots from the monitor of a server.

use std::time::Duration;

use anyhow::{Context, Result};
use throttlekit_proto::v1::monitor_client::MonitorClient;
use throttlekit_proto::v1::{GetSnapshotRequest, Snapshot};
use tokio::time::timeout;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use crate::connect::{AuthInterceptor, ConnectArgs};

/// Time limit for a response.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Maximum size of a snapshot, in bytes.
const SNAPSHOT_BYTES_MAX: usize = 64 << 20;

pub(super) type Client = MonitorClient<InterceptedService<Channel, AuthInterceptor>>;

/// Fetches one snapshot.
pub(super) async fn look_once(connection: &ConnectArgs) -> Result<Snapshot> {
    look(connection, &mut connect(connection).await?).await
}

pub(super) async fn connect(connection: &ConnectArgs) -> Result<Client> {
    let client = MonitorClient::with_interceptor(connection.connect().await?, connection.auth()?);
    Ok(client.max_decoding_message_size(SNAPSHOT_BYTES_MAX))
}

pub(super) async fn look(connection: &ConnectArgs, client: &mut Client) -> Result<Snapshot> {
    let answer = timeout(ANSWER_MAX, client.get_snapshot(GetSnapshotRequest {})).await;
    let answer = answer.context("no response in time")?.map_err(|status| connection.refused(&status))?;
    answer.into_inner().snapshot.context("the response has no snapshot")
}
