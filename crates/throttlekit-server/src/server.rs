//! The doors, the engine and the file, put together.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use throttlekit_postgres::PostgresStore;
use throttlekit_proto::v1::fleet_server::FleetServer;
use throttlekit_proto::v1::monitor_server::MonitorServer;
use throttlekit_proto::v1::rate_limiter_server::RateLimiterServer;
use throttlekit_redis::RedisStore;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::doors::grpc::{FleetDoor, MonitorDoor, RateLimiterDoor, health};
use crate::engine::{Backend, Engine, EngineOptions};
use crate::reload::{Loaded, Reloader};
use crate::seeing::{Hub, HubOptions, mind_store};

/// The largest request that is read.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Where counts are kept, as it is said on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// In this process.
    Memory,
    /// One Redis or Valkey, or a Sentinel or a cluster by several addresses.
    Redis(Vec<String>),
    /// PostgreSQL.
    Postgres(String),
}

impl StoreUrl {
    /// What an address means: `memory`, `redis://…` (`redis+cluster://a,b,c`), `postgres://…`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        if let Some(nodes) = text.strip_prefix("redis+cluster://") {
            return Ok(Self::Redis(nodes.split(',').map(|node| format!("redis://{node}")).collect()));
        }
        if text.starts_with("redis://") || text.starts_with("rediss://") {
            return Ok(Self::Redis(vec![text.into()]));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.into()));
        }
        Err("a store is `memory`, `redis://host:port`, `redis+cluster://host:port,host:port` or `postgres://host/db`".into())
    }

    /// Reaches it.
    pub async fn connect(&self) -> Result<Backend, String> {
        let wrong = |error: throttlekit::store::StoreError| error.to_string();
        match self {
            Self::Memory => Ok(Backend::memory()),
            Self::Redis(urls) => match &urls[..] {
                [url] => Ok(Backend::Redis(RedisStore::builder(url).connect().await.map_err(wrong)?)),
                many => {
                    Ok(Backend::Redis(RedisStore::cluster(many.to_vec()).connect().await.map_err(wrong)?))
                }
            },
            Self::Postgres(url) => {
                Ok(Backend::Postgres(Arc::new(PostgresStore::builder(url).connect().await.map_err(wrong)?)))
            }
        }
    }
}

/// What a server is made of.
#[derive(Clone)]
pub struct ServerOptions {
    /// The policy file.
    pub policies: PathBuf,
    /// How often it is looked at.
    pub reload_every: Duration,
    /// What the engine is made of. Its witness is the server's hub, whatever is given here.
    pub engine: EngineOptions,
    /// What is shown of it.
    pub hub: HubOptions,
    /// Where gRPC is served.
    pub grpc: SocketAddr,
    /// How long requests that are under way may take when it stops.
    pub grace: Duration,
}

impl ServerOptions {
    /// A server of this file over this store, on a free loopback port.
    pub fn new(policies: PathBuf, backend: Backend) -> Self {
        Self {
            policies,
            reload_every: Duration::from_secs(1),
            engine: EngineOptions::over(backend),
            hub: HubOptions::default(),
            grpc: SocketAddr::from(([127, 0, 0, 1], 0)),
            grace: Duration::from_secs(10),
        }
    }
}

/// A server that runs.
pub struct Server {
    engine: Engine,
    hub: Arc<Hub>,
    reloader: Arc<Reloader>,
    grpc: SocketAddr,
    stop: watch::Sender<bool>,
    doors: JoinSet<()>,
}

impl Server {
    /// Reads the file, opens the doors and serves; or says what is in the way.
    pub async fn start(options: ServerOptions) -> Result<Self, String> {
        let loaded = Loaded::read(&options.policies)?;
        loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let reloader = Reloader::new(options.policies, &loaded);
        let hub = Hub::start(options.hub).map_err(|error| error.to_string())?;
        let seen = EngineOptions { witness: hub.clone(), ..options.engine };
        let engine = Engine::start(seen, loaded.file)?;
        reloader.watch(engine.clone(), options.reload_every);
        let bind = |error: std::io::Error| format!("{}: {error}: choose another with --listen", options.grpc);
        let listener = TcpListener::bind(options.grpc).await.map_err(bind)?;
        let grpc = listener.local_addr().map_err(bind)?;
        let (stop, stopped) = watch::channel(false);
        let mut doors = JoinSet::new();
        let rate_limiter = RateLimiterServer::new(RateLimiterDoor::new(engine.clone()))
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let fleet =
            FleetServer::new(FleetDoor::new(engine.clone())).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let monitor = MonitorServer::new(MonitorDoor::new(hub.clone(), engine.clone(), reloader.clone()))
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let minding = mind_store(hub.clone(), engine.clone());
        let until_stopped = until(stopped.clone());
        doors.spawn(async move {
            tokio::select! {
                () = minding => {}
                () = until_stopped => {}
            }
        });
        let router = tonic::transport::Server::builder()
            .add_service(rate_limiter)
            .add_service(fleet)
            .add_service(monitor)
            .add_service(health(engine.clone()));
        let incoming = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
        doors.spawn(async move {
            let _ = router.serve_with_incoming_shutdown(incoming, until(stopped)).await;
        });
        Ok(Self { engine, hub, reloader, grpc, stop, doors })
    }

    /// Where gRPC is served.
    pub fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// The engine behind the doors.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What sees every decision.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The file in force, and how it came to be.
    pub fn reloader(&self) -> &Arc<Reloader> {
        &self.reloader
    }

    /// Stops: no new requests, those under way end, leases and fetched units are handed back.
    pub async fn stop(mut self) {
        let _ = self.stop.send(true);
        // Streams of denials would not end by themselves.
        self.hub.close();
        while self.doors.join_next().await.is_some() {}
        self.engine.drain().await;
    }
}

fn until(mut stopped: watch::Receiver<bool>) -> impl Future<Output = ()> {
    async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }
}
