//! Watches the store, and records when it becomes unavailable and when it is back.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::clock::{Clock, WallClock};

use super::ServerTelemetry;
use crate::engine::Engine;

/// Interval of checks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Interval of probes of an unavailable store, in case there are no other calls. In checks.
const PROBE_EVERY: u32 = 4;

/// Watches the store for as long as it is polled: logs one line when it becomes unavailable and one when it is back,
/// however many calls failed in between.
pub async fn watch_store(telemetry: Arc<ServerTelemetry>, engine: Engine) {
    let mut every = tokio::time::interval(LOOK_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut looks = 0_u32;
    loop {
        every.tick().await;
        let health = engine.store_health();
        note(&telemetry, health.kind, health.serving);
        looks = looks.wrapping_add(1);
        if !health.serving && looks.is_multiple_of(PROBE_EVERY) {
            engine.probe().await;
        }
    }
}

/// Logs the change, if there is one.
fn note(telemetry: &ServerTelemetry, kind: &'static str, serving: bool) {
    match (telemetry.store_serves(serving), serving) {
        (Some(_), false) => tracing::warn!(store = kind, "store unavailable"),
        (Some(since), true) => {
            let away_ms = WallClock.now().since(since).as_millis() as u64;
            tracing::info!(store = kind, away_ms, "store available again");
        }
        (None, _) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::TelemetryOptions;
    use super::*;

    #[test]
    fn an_outage_is_counted_once_and_is_over_once() {
        let telemetry = ServerTelemetry::start(TelemetryOptions::default()).unwrap();
        for serving in [true, false, false, false, true, true, false] {
            note(&telemetry, "redis", serving);
        }
        assert_eq!(telemetry.store().went_away, 2);
        assert!(telemetry.store().away_since.is_some());
        note(&telemetry, "redis", true);
        assert_eq!((telemetry.store().went_away, telemetry.store().away_since), (2, None));
    }
}
