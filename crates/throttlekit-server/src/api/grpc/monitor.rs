//! The monitor: a read-only view of the server.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{self, Stream};
use throttlekit_proto::v1::monitor_server::Monitor;
use throttlekit_proto::v1::{GetSnapshotRequest, GetSnapshotResponse, WatchRequest, WatchResponse};
use tonic::{Request, Response, Status};

use super::status;
use crate::access::{Caller, MonitorLog};
use crate::engine::Engine;
use crate::listen::Peer;
use crate::policy::Endpoint;
use crate::reload::Reloader;
use crate::telemetry::{ServerTelemetry, snapshot};

/// Maximum length of a policy name in a request, in bytes.
const POLICY_BYTES_MAX: usize = 1_024;

/// The service of the monitor.
#[derive(Clone)]
pub struct MonitorApi {
    telemetry: Arc<ServerTelemetry>,
    engine: Engine,
    reloader: Arc<Reloader>,
    log: Arc<MonitorLog>,
}

impl MonitorApi {
    /// Creates the service of this engine, its telemetry and the current policy file.
    pub fn new(telemetry: Arc<ServerTelemetry>, engine: Engine, reloader: Arc<Reloader>) -> Self {
        Self { telemetry, engine, reloader, log: Arc::default() }
    }
}

#[tonic::async_trait]
impl Monitor for MonitorApi {
    /// Returns a snapshot of the policies that the caller may see; refuses if there are some and it may see none.
    async fn get_snapshot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Result<Response<GetSnapshotResponse>, Status> {
        let caller = Caller::of(request.extensions(), &self.engine);
        let may = |policy: &str| caller.allows(Endpoint::Monitor, policy, b"");
        let seen = snapshot(&self.telemetry, &self.engine, &self.reloader.status(), may);
        if seen.policies.is_empty() {
            caller.may(Endpoint::Monitor, "", b"").map_err(status)?;
        }
        self.log.opened(&caller, request.extensions().get::<Peer>(), "GetSnapshot");
        Ok(Response::new(GetSnapshotResponse { snapshot: Some(seen) }))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

    /// Streams denials of one policy, or of all that the caller may see.
    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let caller = Caller::of(request.extensions(), &self.engine);
        let peer = request.extensions().get::<Peer>().cloned();
        let one = request.into_inner().policy;
        if one.len() > POLICY_BYTES_MAX {
            return Err(Status::invalid_argument("policy name too long"));
        }
        if !one.is_empty() {
            caller.may(Endpoint::Monitor, &one, b"").map_err(status)?;
        }
        let full = |_| Status::resource_exhausted("too many open streams of denials: try again later");
        let room = caller.watches().map_err(full)?;
        self.log.opened(&caller, peer.as_ref(), "Watch");
        let caller = caller.without_turn();
        let wants = move |policy: &str| {
            (one.is_empty() || one == policy) && caller.allows(Endpoint::Monitor, policy, b"")
        };
        let watch = self.telemetry.watch(wants).map_err(full)?;
        let told = stream::unfold((watch, room), |(mut watch, room)| async move {
            let denial = watch.next().await?;
            Some((Ok(WatchResponse { denial: Some(Arc::unwrap_or_clone(denial).into()) }), (watch, room)))
        });
        Ok(Response::new(Box::pin(told)))
    }
}
