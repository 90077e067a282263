//! Polls the monitor, across restarts of the server.

use std::time::Duration;

use anyhow::{Context, Result};
use throttlekit_proto::v1::monitor_client::MonitorClient;
use throttlekit_proto::v1::{GetSnapshotRequest, Snapshot};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use super::board::Input;
use crate::connect::{AuthInterceptor, ConnectArgs};

/// Time limit for a response.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Maximum size of a snapshot, in bytes.
const SNAPSHOT_BYTES_MAX: usize = 64 << 20;

type Client = MonitorClient<InterceptedService<Channel, AuthInterceptor>>;

/// Fetches one snapshot.
pub(super) async fn look_once(connection: &ConnectArgs) -> Result<Snapshot> {
    look(connection, &mut connect(connection).await?).await
}

/// Fetches a snapshot `hz` times per second, until nobody receives them. Retries at the same rate while the server is
/// unavailable.
pub(super) async fn watch(connection: ConnectArgs, hz: u64, told: mpsc::Sender<Input>) {
    let mut every = interval(Duration::from_millis(1_000 / hz));
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut client = None;
    loop {
        every.tick().await;
        let input = match seen(&connection, &mut client).await {
            Ok(snapshot) => Input::Seen(Box::new(snapshot)),
            Err(error) => {
                client = None;
                Input::Away(format!("{error:#}"))
            }
        };
        if told.send(input).await.is_err() {
            return;
        }
    }
}

async fn seen(connection: &ConnectArgs, client: &mut Option<Client>) -> Result<Snapshot> {
    if client.is_none() {
        *client = Some(connect(connection).await?);
    }
    look(connection, client.as_mut().context("not connected")?).await
}

async fn connect(connection: &ConnectArgs) -> Result<Client> {
    let client = MonitorClient::with_interceptor(connection.connect().await?, connection.auth()?);
    Ok(client.max_decoding_message_size(SNAPSHOT_BYTES_MAX))
}

async fn look(connection: &ConnectArgs, client: &mut Client) -> Result<Snapshot> {
    let answer = timeout(ANSWER_MAX, client.get_snapshot(GetSnapshotRequest {})).await;
    let answer = answer.context("no response in time")?.map_err(|status| connection.refused(&status))?;
    answer.into_inner().snapshot.context("the response has no snapshot")
}
