//! Asks the monitor again and again, through whatever becomes of the server.

use std::time::Duration;

use anyhow::{Context, Result};
use throttlekit_proto::v1::monitor_client::MonitorClient;
use throttlekit_proto::v1::{GetSnapshotRequest, Snapshot};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use super::board::Input;
use crate::dial::{Dial, Says};

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// The largest snapshot that is read.
const SNAPSHOT_BYTES_MAX: usize = 64 << 20;

type Client = MonitorClient<InterceptedService<Channel, Says>>;

/// One look.
pub(super) async fn look_once(dial: &Dial) -> Result<Snapshot> {
    look(dial, &mut connect(dial).await?).await
}

/// Looks so often a second, until nobody listens. A server that is away is tried again at the same pace.
pub(super) async fn watch(dial: Dial, hz: u64, told: mpsc::Sender<Input>) {
    let mut every = interval(Duration::from_millis(1_000 / hz));
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut client = None;
    loop {
        every.tick().await;
        let input = match seen(&dial, &mut client).await {
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

async fn seen(dial: &Dial, client: &mut Option<Client>) -> Result<Snapshot> {
    if client.is_none() {
        *client = Some(connect(dial).await?);
    }
    look(dial, client.as_mut().context("not connected")?).await
}

async fn connect(dial: &Dial) -> Result<Client> {
    let client = MonitorClient::with_interceptor(dial.connect().await?, dial.says()?);
    Ok(client.max_decoding_message_size(SNAPSHOT_BYTES_MAX))
}

async fn look(dial: &Dial, client: &mut Client) -> Result<Snapshot> {
    let answer = timeout(ANSWER_MAX, client.get_snapshot(GetSnapshotRequest {})).await;
    let answer = answer.context("no answer in time")?.map_err(|status| dial.refused(&status))?;
    answer.into_inner().snapshot.context("an answer without a snapshot")
}
