//! `grpc.health.v1`: SERVING while the store responds.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use throttlekit_proto::envoy::rate_limit_service_server::SERVICE_NAME as ENVOY;
use throttlekit_proto::v1::fleet_server::SERVICE_NAME as FLEET;
use throttlekit_proto::v1::monitor_server::SERVICE_NAME as MONITOR;
use throttlekit_proto::v1::rate_limiter_server::SERVICE_NAME as RATE_LIMITER;
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::api::fair_use::who;
use crate::engine::Engine;
use crate::share::Shares;

/// Interval at which the store is probed.
const EVERY: Duration = Duration::from_millis(500);
/// Time for watchers to receive the last status before the server stops.
const TOLD_WITHIN: Duration = Duration::from_millis(100);

const NAMES: [&str; 5] = ["", RATE_LIMITER, FLEET, MONITOR, ENVOY];

/// Creates the health service of an engine. It reports NOT_SERVING while the store does not respond; when the server
/// stops it reports so permanently, and watches end. Watchers receive changes only.
pub(crate) fn health(
    engine: Engine,
    shares: Arc<Shares>,
    mut stopped: watch::Receiver<bool>,
) -> HealthServer<impl Health> {
    let (tell, told) = watch::channel(ServingStatus::Serving);
    tokio::spawn(async move {
        let mut every = tokio::time::interval(EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let becomes = |status| tell.send_if_modified(|now| std::mem::replace(now, status) != status);
        loop {
            tokio::select! {
                _ = every.tick() => {}
                _ = stopped.wait_for(|stopped| *stopped) => break,
            }
            let serving = !engine.is_draining() && engine.probe().await;
            becomes(if serving { ServingStatus::Serving } else { ServingStatus::NotServing });
        }
        becomes(ServingStatus::NotServing);
        tokio::time::sleep(TOLD_WITHIN).await;
    });
    HealthServer::new(HealthApi { told, shares })
}

struct HealthApi {
    told: watch::Receiver<ServingStatus>,
    shares: Arc<Shares>,
}

impl HealthApi {
    fn known(request: &Request<HealthCheckRequest>) -> Result<(), Status> {
        let name = request.get_ref().service.as_str();
        if NAMES.contains(&name) { Ok(()) } else { Err(Status::not_found("unknown service")) }
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status as i32 }
}

#[tonic::async_trait]
impl Health for HealthApi {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        Self::known(&request)?;
        let status = *self.told.borrow();
        Ok(Response::new(response(status)))
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Self::known(&request)?;
        let room = self.shares.stream(who(request.extensions()));
        let room = room.ok_or_else(|| Status::resource_exhausted("too many health streams: use Check"))?;
        let mut told = self.told.clone();
        told.mark_changed();
        let changes = stream::unfold((told, room), |(mut told, room)| async {
            // Fails once the server has stopped.
            told.changed().await.ok()?;
            let status = *told.borrow_and_update();
            Some((Ok(response(status)), (told, room)))
        });
        Ok(Response::new(Box::pin(changes)))
    }
}
