//! Polls the monitor, across restarts of the server.

use std::time::Duration;

use anyhow::{Context, Result};
use throttlekit_proto::v1::Snapshot;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::board::Input;
use super::monitor::{Client, connect, look};
use crate::connect::ConnectArgs;

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
