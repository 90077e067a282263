//! `grpc.health.v1`: serving while the store answers.

use std::time::Duration;

use throttlekit_proto::envoy::rate_limit_service_server::SERVICE_NAME as ENVOY;
use throttlekit_proto::v1::fleet_server::SERVICE_NAME as FLEET;
use throttlekit_proto::v1::monitor_server::SERVICE_NAME as MONITOR;
use throttlekit_proto::v1::rate_limiter_server::SERVICE_NAME as RATE_LIMITER;
use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};

use crate::engine::Engine;

/// How often the store is asked whether it is there.
const EVERY: Duration = Duration::from_millis(500);
/// How long those who watch have to hear that the server stops.
const TOLD_WITHIN: Duration = Duration::from_millis(100);

const NAMES: [&str; 5] = ["", RATE_LIMITER, FLEET, MONITOR, ENVOY];

/// The health service of an engine. It turns NOT_SERVING when the store does not answer, and back when it does; when the
/// server stops it turns so for good, and whoever watches is let go.
pub fn health(engine: Engine, mut stopped: watch::Receiver<bool>) -> HealthServer<impl Health> {
    let (reporter, service) = tonic_health::server::health_reporter();
    tokio::spawn(async move {
        let mut every = tokio::time::interval(EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = every.tick() => {}
                _ = stopped.wait_for(|stopped| *stopped) => break,
            }
            let serving = engine.probe().await;
            let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
            for name in NAMES {
                reporter.set_service_status(name, status).await;
            }
        }
        for name in NAMES {
            reporter.set_service_status(name, ServingStatus::NotServing).await;
        }
        tokio::time::sleep(TOLD_WITHIN).await;
        for name in NAMES {
            let mut reporter = reporter.clone();
            reporter.clear_service_status(name).await;
        }
    });
    service
}
