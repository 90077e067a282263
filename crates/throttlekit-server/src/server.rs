//! The doors, the engine and the file, put together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use throttlekit_proto::v1::fleet_server::FleetServer;
use throttlekit_proto::v1::monitor_server::MonitorServer;
use throttlekit_proto::v1::rate_limiter_server::RateLimiterServer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::service::Routes;

use crate::doors::envoy::EnvoyDoor;
use crate::doors::grpc::{FleetDoor, MonitorDoor, RateLimiterDoor, health};
use crate::engine::{Backend, Engine, EngineOptions};
use crate::listen::{self, ListenOptions, Speaks, Tls};
use crate::reload::{Loaded, Reloader};
use crate::seeing::{Hub, HubOptions};

/// What a server is made of.
#[derive(Clone)]
pub struct ServerOptions {
    /// The policy file.
    pub policies: PathBuf,
    /// How often it is looked at.
    pub reload_every: Duration,
    /// What the engine is made of. Its witness is the hub's, whatever stands here.
    pub engine: EngineOptions,
    /// What is kept of decisions for those who look.
    pub hub: HubOptions,
    /// Where gRPC is served.
    pub grpc: SocketAddr,
    /// What connections and requests may cost.
    pub limits: listen::Limits,
    /// The certificate, if connections are encrypted.
    pub tls: Option<Tls>,
    /// Whether clients are told what can be asked (`grpc.reflection.v1`).
    pub reflection: bool,
}

impl ServerOptions {
    /// A server of this file over this store, on free loopback ports.
    pub fn new(policies: PathBuf, backend: Backend) -> Self {
        Self {
            policies,
            reload_every: Duration::from_secs(1),
            engine: EngineOptions::over(backend),
            hub: HubOptions::default(),
            grpc: SocketAddr::from(([127, 0, 0, 1], 0)),
            limits: listen::Limits::default(),
            tls: None,
            reflection: false,
        }
    }
}

/// A server that runs.
pub struct Server {
    engine: Engine,
    reloader: Arc<Reloader>,
    hub: Arc<Hub>,
    grpc: SocketAddr,
    stop: watch::Sender<bool>,
    doors: JoinSet<()>,
}

impl Server {
    /// Reads the file, opens the doors and serves; or says what is in the way.
    pub async fn start(options: ServerOptions) -> Result<Self, String> {
        let loaded = Loaded::read(&options.policies)?;
        loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let reloader = Reloader::new(options.policies.clone(), &loaded);
        let hub = Hub::start(options.hub.clone()).map_err(|error| error.to_string())?;
        let engine = EngineOptions { witness: hub.clone(), ..options.engine.clone() };
        let engine = Engine::start(engine, loaded.file)?;
        let listener = bind(options.grpc, "--listen").await?;
        let grpc = listener.local_addr().map_err(|error| error.to_string())?;
        reloader.watch(engine.clone(), options.reload_every);
        let (stop, stopped) = watch::channel(false);
        let mut server = Self { engine, reloader, hub, grpc, stop, doors: JoinSet::new() };
        server.open(listener, server.grpc_doors(&options)?, Speaks::Http2, &options, stopped);
        server.doors.spawn(crate::seeing::mind_store(server.hub.clone(), server.engine.clone()));
        Ok(server)
    }

    fn grpc_doors(&self, options: &ServerOptions) -> Result<Routes, String> {
        let (engine, bytes_max) = (&self.engine, options.limits.message_bytes_max);
        let rate_limiter = RateLimiterServer::new(RateLimiterDoor::new(engine.clone()));
        let fleet = FleetServer::new(FleetDoor::new(engine.clone()));
        let monitor = MonitorDoor::new(self.hub.clone(), engine.clone(), self.reloader.clone());
        let mut routes = Routes::new(rate_limiter.max_decoding_message_size(bytes_max))
            .add_service(fleet.max_decoding_message_size(bytes_max))
            .add_service(MonitorServer::new(monitor).max_decoding_message_size(bytes_max))
            .add_service(EnvoyDoor::new(engine.clone()).into_service())
            .add_service(health(engine.clone()));
        if options.reflection {
            let known = tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(throttlekit_proto::DESCRIPTORS);
            routes = routes.add_service(known.build_v1().map_err(|error| error.to_string())?);
        }
        Ok(routes.prepare())
    }

    fn open(
        &mut self,
        listener: TcpListener,
        service: Routes,
        speaks: Speaks,
        options: &ServerOptions,
        mut stopped: watch::Receiver<bool>,
    ) {
        let (limits, tls) = (options.limits.clone(), options.tls.clone());
        let options = ListenOptions { limits, tls, speaks, ..ListenOptions::default() };
        self.doors.spawn(async move {
            let until = async {
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            let stats = listen::serve(listener, service, options, until).await;
            tracing::info!(?stats, "no more connections");
        });
    }

    /// Where gRPC is served.
    pub fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// The engine behind the doors.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The file in force, and how it came to be.
    pub fn reloader(&self) -> &Arc<Reloader> {
        &self.reloader
    }

    /// Stops: no new requests, those under way end, leases and fetched units are handed back.
    pub async fn stop(mut self) {
        let _ = self.stop.send(true);
        self.hub.close();
        while self.doors.join_next().await.is_some() {}
        self.engine.drain().await;
    }
}

async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, String> {
    TcpListener::bind(address)
        .await
        .map_err(|error| format!("{address}: {error}: choose another with {flag}"))
}
