//! A server to be met.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use throttlekit_proto::v1::fleet_server::FleetServer;
use throttlekit_proto::v1::rate_limiter_server::RateLimiterServer;
use throttlekit_server::internals::access::{Access, Identify, Secrets};
use throttlekit_server::internals::api::grpc::{LeaseApi, RateLimiterApi};
use throttlekit_server::internals::engine::{Backend, Engine, EngineOptions};
use throttlekit_server::internals::listen::{Counters, ListenOptions, Stats, serve};
use throttlekit_server::policy;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::Layer;

pub(crate) const POLICIES: &str = "
version: 1
policies:
  api: {rate: {limit: 1000000000, per: 1s}}
  chat: {rate: {limit: 1000000000, per: 1s}}
  jobs: {concurrency: {limit: 100}}
  lent: {rate: {algorithm: fixed_window, limit: 10, per: 1d}, fleet: {}}
";

/// A server that runs in this process.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) access: Arc<ArcSwap<Access>>,
    counters: Arc<Counters>,
    stop: oneshot::Sender<()>,
    done: JoinHandle<Stats>,
}

impl Target {
    /// One that whoever reaches it may use.
    pub(crate) async fn open(options: ListenOptions) -> Self {
        let secrets = Secrets { trust_loopback: true, ..Secrets::default() };
        Self::start(options, Access::open(secrets)).await
    }

    pub(crate) async fn start(options: ListenOptions, access: Access) -> Self {
        let (file, _) = policy::load(POLICIES).expect("good policies");
        let engine = Engine::start(EngineOptions::over(Backend::memory()), file).expect("an engine");
        let bytes_max = options.limits.message_bytes_max;
        let rates = RateLimiterServer::new(RateLimiterApi::new(engine.clone()));
        let fleet = FleetServer::new(LeaseApi::new(engine));
        let routes = tonic::service::Routes::new(rates.max_decoding_message_size(bytes_max))
            .add_service(fleet.max_decoding_message_size(bytes_max));
        let access = Arc::new(ArcSwap::from_pointee(access));
        let service = Identify::by(access.clone()).layer(routes);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (counters, (stop, stopped)) = (options.counters.clone(), oneshot::channel());
        let done = tokio::spawn(serve(listener, service, options, async {
            let _ = stopped.await;
        }));
        Self { address, access, counters, stop, done }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.counters.stats()
    }

    pub(crate) async fn stop(self) -> Stats {
        let _ = self.stop.send(());
        self.done.await.expect("a server does not panic")
    }
}
