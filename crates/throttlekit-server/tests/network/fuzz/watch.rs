//! Liveness checks and leak checks.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::attack;
use crate::client::Client;
use crate::siege::Besieged;

/// Gauges of an idle server. Reading them takes one connection.
const GAUGES: [(&str, f64); 7] = [
    ("throttlekit_connections_open", 1.0),
    ("throttlekit_deciding", 0.0),
    ("throttlekit_waiting", 0.0),
    ("throttlekit_body_bytes", 0.0),
    ("throttlekit_health_streams", 0.0),
    ("throttlekit_sessions", 0.0),
    ("throttlekit_watchers", 0.0),
];
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Sends one check over gRPC and one over HTTP, each on a new connection. Returns the time of the slower one.
pub(super) async fn honest(server: &Besieged, within: Duration) -> Result<Duration, String> {
    let begun = Instant::now();
    let grpc = async {
        let client = Client::connect(server.listeners.grpc).await?;
        client.check("u", "honest").await
    };
    let grpc = timeout(within, grpc);
    let http = timeout(
        within,
        attack::post(server.listeners.http, "/v1/check", br#"{"policy":"u","key":"honest"}"#),
    );
    let (grpc, http) = tokio::join!(grpc, http);
    if !matches!(grpc, Ok(Ok(_))) {
        return Err(format!("an honest check over gRPC failed: {grpc:?}"));
    }
    if !matches!(http, Ok(Ok((200, _)))) {
        return Err(format!("an honest check over HTTP failed: {http:?}"));
    }
    Ok(begun.elapsed())
}

/// Waits until the server has released everything. Returns what is still held at the deadline.
pub(super) async fn leaks(server: &Besieged, descriptors: usize, within: Duration) -> Vec<String> {
    let end = Instant::now() + within;
    loop {
        let found = held(server, descriptors).await;
        if found.is_empty() || Instant::now() >= end {
            return found;
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn held(server: &Besieged, descriptors: usize) -> Vec<String> {
    let page = timeout(Duration::from_secs(5), attack::get(server.listeners.metrics, "/metrics")).await;
    let Ok(Ok(page)) = page else { return vec!["no metrics page".into()] };
    if !page.contains(GAUGES[0].0) {
        return vec!["incomplete metrics page".into()];
    }
    let gauges = GAUGES.iter().map(|(name, least)| (*name, attack::metric(&page, name) - least));
    let now = server.descriptors() as f64 - descriptors as f64;
    let all = gauges.chain([("descriptors", now)]);
    all.filter(|(_, more)| *more > 0.0)
        .map(|(name, more)| format!("{name}: {more} more than on the idle server"))
        .collect()
}
