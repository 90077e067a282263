//! `grpc.health.v1`: serving while the store answers.

use std::time::Duration;

use throttlekit_proto::v1::fleet_server::SERVICE_NAME as FLEET;
use throttlekit_proto::v1::monitor_server::SERVICE_NAME as MONITOR;
use throttlekit_proto::v1::rate_limiter_server::SERVICE_NAME as RATE_LIMITER;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};

use crate::engine::Engine;

/// How often the store is asked whether it is there.
const EVERY: Duration = Duration::from_millis(500);

/// The health service of an engine. It turns NOT_SERVING when the store does not answer, and back when it does.
pub fn health(engine: Engine) -> HealthServer<impl Health> {
    let (reporter, service) = tonic_health::server::health_reporter();
    tokio::spawn(async move {
        let mut every = tokio::time::interval(EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            let serving = engine.probe().await;
            let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
            for name in ["", RATE_LIMITER, FLEET, MONITOR] {
                reporter.set_service_status(name, status).await;
            }
        }
    });
    service
}
