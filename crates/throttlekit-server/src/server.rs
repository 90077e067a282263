//! A running server: listeners, APIs, engine and policy file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use throttlekit_proto::envoy::rate_limit_service_server::RateLimitServiceServer;
use throttlekit_proto::v1::admin_server::AdminServer;
use throttlekit_proto::v1::fleet_server::FleetServer;
use throttlekit_proto::v1::monitor_server::MonitorServer;
use throttlekit_proto::v1::rate_limiter_server::RateLimiterServer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::service::Routes;
use tower::Layer;
use tower::util::MapResponse;

use crate::access::{Identify, PROXY_TOKEN, Secrets};
use crate::api::admin::{Control, Operator};
use crate::api::direct::Direct;
use crate::api::envoy::{EnvoyAuthorization, EnvoyRls};
use crate::api::fair_use::{FairUse, SESSION};
use crate::api::grpc::{
    AdminApi, LeaseApi, MonitorApi, RateLimiterApi, SessionApi, SessionContext, health,
    undecodable_is_invalid,
};
use crate::api::http::{CheckContext, HttpApi};
use crate::api::resp::RespApi;
use crate::api::unary::Unary;
use crate::engine::{Backend, Engine, EngineOptions};
use crate::limits::ENVOY_BYTES_MAX;
use crate::listen::{self, Commands, Counters, FastPath, ListenOptions, Speaks, Stats, Tls, TlsFiles};
use crate::process_options::ProcessOptions;
use crate::reload::{Loaded, Reloader};
use crate::server_error::ServerError;
use crate::share::{Processor, Shares};
use crate::telemetry::{
    METRICS_CONTENT_TYPE, Pages, ServerStats, ServerTelemetry, TelemetryOptions, Traces, metrics, watch_store,
};

/// Interval at which certificates are checked for changes.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(60);
/// Maximum time that a start waits for overrides of the store.
const OVERRIDES_WITHIN: Duration = Duration::from_secs(2);

/// Paths of the services that decide most requests.
const RATE_LIMITER: &str = "/throttlekit.v1.RateLimiter/";
const ENVOY: &str = "/envoy.service.ratelimit.v3.RateLimitService/";

/// The gRPC services: those that decide most requests, and a router for the others.
type GrpcApi = Direct<RateLimiterServices, Direct<EnvoyServices, Routes>>;
/// The service of Envoy's decisions, and its errors.
type EnvoyServices = Unary<EnvoyRls, RateLimitServiceServer<EnvoyRls>>;
/// The service of sessions, and that of all other methods.
type RateLimiterServices = Direct<SessionApi, Unary<RateLimiterApi, RateLimiterServer<RateLimiterApi>>>;

/// Options of a server.
#[derive(Clone)]
pub struct ServerOptions {
    /// The policy file.
    pub policies: PathBuf,
    /// Interval at which the policy file is checked for changes.
    pub reload_every: Duration,
    /// The options of the engine. Its observer is always the server's telemetry.
    pub engine: EngineOptions,
    /// The options of the telemetry.
    pub telemetry: TelemetryOptions,
    /// Address of the gRPC listener.
    pub grpc: SocketAddr,
    /// Address of the HTTP listener, if there is one.
    pub http: Option<SocketAddr>,
    /// Address of the RESP listener, for clients of Redis, if there is one.
    pub resp: Option<SocketAddr>,
    /// Number of proxies in front of the HTTP API, to find a client address that the client cannot forge.
    pub trusted_hops: u8,
    /// Header in which a forward-auth proxy sends its own token.
    pub proxy_token: HeaderName,
    /// Address of the metrics listener for Prometheus, if there is one. It is separate from the listeners for callers.
    pub metrics: Option<SocketAddr>,
    /// Sockets that are open already, such as systemd passes them. A listener with the address of one of them uses it
    /// and binds nothing. A socket that no listener uses is an error.
    pub sockets: Vec<Arc<std::net::TcpListener>>,
    /// Secrets that the monitor and reservations require if the file names no principals.
    pub secrets: Secrets,
    /// Limits of connections and requests.
    pub limits: listen::Limits,
    /// The certificate, if connections are encrypted.
    pub tls: Option<Tls>,
    /// Disables client certificates on the metrics listener, for metrics and health, even if the other listeners
    /// require them: probes have none.
    pub metrics_without_certificates: bool,
    /// Enables gRPC server reflection (`grpc.reflection.v1`).
    pub reflection: bool,
    /// Address of an OpenTelemetry collector for traces and counters, if there is one: `http://localhost:4317`.
    #[cfg(feature = "otlp")]
    pub otlp: Option<String>,
    /// Options that the server itself does not use, for operators who read its configuration.
    pub process: ProcessOptions,
}

impl ServerOptions {
    /// Creates options for this policy file and store, on free loopback ports.
    pub fn new(policies: PathBuf, backend: Backend) -> Self {
        Self {
            policies,
            reload_every: Duration::from_secs(1),
            engine: EngineOptions::over(backend),
            telemetry: TelemetryOptions::default(),
            grpc: SocketAddr::from(([127, 0, 0, 1], 0)),
            http: None,
            resp: None,
            trusted_hops: 0,
            proxy_token: PROXY_TOKEN,
            metrics: None,
            sockets: Vec::new(),
            secrets: Secrets::default(),
            limits: listen::Limits::default(),
            tls: None,
            metrics_without_certificates: false,
            reflection: false,
            #[cfg(feature = "otlp")]
            otlp: None,
            process: ProcessOptions::default(),
        }
    }

    /// Returns the address of the collector.
    #[cfg(feature = "otlp")]
    pub(crate) fn collector(&self) -> Option<&str> {
        self.otlp.as_deref()
    }

    #[cfg(not(feature = "otlp"))]
    #[allow(clippy::unused_self, reason = "the same call with and without the feature")]
    pub(crate) fn collector(&self) -> Option<&str> {
        None
    }

    /// Enables TLS with this certificate chain and its private key, in PEM. With `client_ca`, client certificates that
    /// these CAs issued are required. Changed files are reloaded while the server runs.
    pub fn load_tls(
        &mut self,
        cert: PathBuf,
        key: PathBuf,
        client_ca: Option<PathBuf>,
    ) -> Result<(), ServerError> {
        self.tls = Tls::load(&TlsFiles { cert: Some(cert), key: Some(key), client_ca })?;
        Ok(())
    }

    /// Opens a listener, or takes the socket that is open at its address.
    async fn bind(
        &self,
        address: SocketAddr,
        option: &'static str,
    ) -> Result<(TcpListener, SocketAddr), ServerError> {
        let wrong = |error| ServerError::Listen { address, option, error };
        let open = self.sockets.iter().find(|socket| socket.local_addr().is_ok_and(|bound| bound == address));
        let listener = match open {
            Some(socket) => adopt(socket).map_err(wrong)?,
            None => TcpListener::bind(address).await.map_err(wrong)?,
        };
        let bound = listener.local_addr().map_err(wrong)?;
        Ok((listener, bound))
    }
}

/// The counters of listeners and APIs.
struct Seen {
    grpc: Arc<Counters>,
    http: Arc<Counters>,
    resp: Arc<Counters>,
    metrics: Arc<Counters>,
    envoy: EnvoyRls,
    shares: Arc<Shares>,
    tls: Option<Tls>,
}

impl Seen {
    fn now(&self, reloader: &Reloader) -> ServerStats {
        let listeners =
            [("grpc", &self.grpc), ("http", &self.http), ("resp", &self.resp), ("metrics", &self.metrics)];
        let listeners = listeners.map(|(name, counters)| (name, counters.stats())).to_vec();
        let load = self.shares.load();
        let principals = self.shares.principals();
        let certificate_expires = self.tls.as_ref().and_then(Tls::expires);
        let callers_refused = reloader.refused();
        let (envoy, envoy_rules) = (self.envoy.stats(), self.envoy.rule_stats());
        ServerStats { listeners, envoy, envoy_rules, load, principals, callers_refused, certificate_expires }
    }
}

/// A running server.
pub struct Server {
    engine: Engine,
    reloader: Arc<Reloader>,
    telemetry: Arc<ServerTelemetry>,
    grpc: SocketAddr,
    http: Option<SocketAddr>,
    resp: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    listeners: JoinSet<()>,
    seen: Arc<Seen>,
    /// Maximum time for leases to end when the server stops.
    grace: Duration,
    /// Background tasks, which end with the server.
    minding: JoinSet<()>,
    control: Arc<Control>,
    traces: Traces,
}

impl Server {
    /// Reads the file, opens the listeners and starts serving. The error says why it cannot.
    pub async fn start(options: ServerOptions) -> Result<Self, ServerError> {
        options.check_addresses()?;
        let loaded = Loaded::read(&options.policies)?;
        let warnings = loaded.warnings.iter().cloned().chain(options.engine.warnings(&loaded.file));
        warnings.for_each(|warning| tracing::warn!("{warning}"));
        let reloader = Reloader::new(options.policies.clone(), &loaded, options.secrets.clone())?;
        let telemetry = ServerTelemetry::start(options.telemetry.clone()).map_err(ServerError::telemetry)?;
        let traces = Traces::start(options.collector(), &telemetry)?;
        let engine = EngineOptions { observer: telemetry.clone(), ..options.engine.clone() };
        let engine = Engine::start(engine, loaded.file)?;
        if tokio::time::timeout(OVERRIDES_WITHIN, engine.look_for_overrides()).await.is_err() {
            tracing::warn!(
                "overrides are not read yet: the limits of the policy file apply until the store responds"
            );
        }
        let (grpc_listener, grpc) = options.bind(options.grpc, "--listen").await?;
        let (stop, stopped) = watch::channel(false);
        let seen = Seen {
            grpc: Arc::default(),
            http: Arc::default(),
            resp: Arc::default(),
            metrics: Arc::default(),
            envoy: EnvoyRls::new(engine.clone()),
            shares: Shares::new(options.limits.clone()),
            tls: options.tls.clone(),
        };
        let control = Arc::new(Control {
            engine: engine.clone(),
            reloader: reloader.clone(),
            tls: options.tls.clone(),
            options: options.described(),
            stop: watch::Sender::new(false),
        });
        let mut server = Self {
            seen: Arc::new(seen),
            engine,
            reloader,
            telemetry,
            grpc,
            http: None,
            resp: None,
            metrics: None,
            stop,
            grace: options.limits.grace,
            listeners: JoinSet::new(),
            minding: JoinSet::new(),
            control,
            traces,
        };
        let identify = Identify::by(server.reloader.access()).proxy_token(options.proxy_token.clone());
        let spans = server.traces.spans();
        let seen = server.seen.clone();
        let fair = |counters: &Arc<Counters>| FairUse::new(seen.shares.clone(), counters.clone());
        let grpc_api = server.grpc_api(&options, stopped.clone())?;
        let grpc_api = MapResponse::new(grpc_api, undecodable_is_invalid::<tonic::body::Body>);
        let grpc_api = identify.layer(fair(&seen.grpc).layer(spans.layer(grpc_api)));
        let processor = Arc::<Processor>::default();
        let listening = |speaks, counters: &Arc<Counters>| {
            let (limits, tls) = (options.limits.clone(), options.tls.clone());
            ListenOptions { limits, tls, speaks, counters: counters.clone(), processor: processor.clone() }
        };
        let grpc = listening(Speaks::Http2, &seen.grpc);
        server.open("grpc", listen::serve(grpc_listener, grpc_api, grpc, stops(stopped.clone())));
        if let Some(address) = options.http {
            let (listener, address) = options.bind(address, "--http").await?;
            server.http = Some(address);
            let api = HttpApi::new(server.engine.clone()).operator(server.operator());
            let api = api.trusted_hops(options.trusted_hops);
            let service = identify.layer(fair(&seen.http).layer(spans.layer(api.clone().into_service())));
            let (http, stopped) = (listening(Speaks::Http, &seen.http), stops(stopped.clone()));
            if server.traces.are_exported() {
                // The fast path creates no spans.
                server.open("http", listen::serve(listener, service, http, stopped));
            } else {
                let context = server.check_context(api);
                let http_api = FastPath::new(move |peer| context.session(peer), service);
                server.open("http", listen::serve_protocol(listener, http_api, http, stopped));
            }
        }
        if let Some(address) = options.resp {
            let (listener, address) = options.bind(address, "--resp").await?;
            server.resp = Some(address);
            let api = server.resp_api();
            let commands = move |peer, bytes_max| api.session(peer, bytes_max);
            let commands = Commands::new(commands, options.limits.message_bytes_max);
            let resp = listening(Speaks::Resp, &seen.resp);
            server.open("resp", listen::serve_protocol(listener, commands, resp, stops(stopped.clone())));
        }
        if let Some(address) = options.metrics {
            let (listener, address) = options.bind(address, "--metrics").await?;
            server.metrics = Some(address);
            let page = server.metrics_page().merge(HttpApi::new(server.engine.clone()).into_health());
            let mut metrics = listening(Speaks::Http, &seen.metrics);
            if options.metrics_without_certificates {
                metrics.tls = metrics.tls.map(|tls| tls.without_client_certificates());
            }
            server.open("metrics", listen::serve(listener, page, metrics, stops(stopped)));
        }
        server.reloader.watch(server.engine.clone(), options.reload_every);
        server.minding.spawn(server.engine.clone().follow_overrides());
        server.minding.spawn(watch_store(server.telemetry.clone(), server.engine.clone()));
        if let Some(tls) = options.tls {
            server.minding.spawn(async move { tls.follow(CERTIFICATES_EVERY).await });
        }
        Ok(server)
    }

    fn grpc_api(
        &self,
        options: &ServerOptions,
        stopped: watch::Receiver<bool>,
    ) -> Result<GrpcApi, ServerError> {
        let (engine, bytes_max) = (&self.engine, options.limits.message_bytes_max);
        let shares = self.seen.shares.clone();
        let rate_limiter = RateLimiterServer::new(RateLimiterApi::new(engine.clone()));
        let rate_limiter = rate_limiter.max_decoding_message_size(bytes_max);
        let rate_limiter = Unary::new(RateLimiterApi::new(engine.clone()), bytes_max, rate_limiter);
        let rate_limiter = Direct::new(|_, path| path == SESSION, self.session_api(), rate_limiter);
        let fleet = FleetServer::new(LeaseApi::new(engine.clone()));
        let admin = AdminServer::new(AdminApi::new(engine.clone()).operator(self.operator()));
        let monitor = MonitorApi::new(self.telemetry.clone(), engine.clone(), self.reloader.clone());
        let mut routes = Routes::new(fleet.max_decoding_message_size(bytes_max))
            .add_service(MonitorServer::new(monitor).max_decoding_message_size(bytes_max))
            .add_service(EnvoyAuthorization::new(engine.clone()).into_service())
            .add_service(admin.max_decoding_message_size(bytes_max))
            .add_service(health(engine.clone(), shares, stopped).max_decoding_message_size(bytes_max));
        if options.reflection {
            let known = tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(throttlekit_proto::DESCRIPTORS);
            routes = routes.add_service(known.build_v1().map_err(ServerError::telemetry)?);
        }
        let envoy = self.seen.envoy.clone();
        let envoy = Unary::new(envoy.clone(), ENVOY_BYTES_MAX, envoy.into_service());
        let others = Direct::new(|_, path| path.starts_with(ENVOY), envoy, routes.prepare());
        Ok(Direct::new(|_, path| path.starts_with(RATE_LIMITER), rate_limiter, others))
    }

    fn operator(&self) -> Operator {
        Operator::new(self.engine.clone()).of_server(self.control.clone())
    }

    fn session_api(&self) -> SessionApi {
        let Seen { shares, grpc, .. } = &*self.seen;
        SessionApi::new(SessionContext {
            engine: self.engine.clone(),
            access: self.reloader.access(),
            shares: shares.clone(),
            counters: grpc.clone(),
        })
    }

    fn check_context(&self, api: HttpApi) -> Arc<CheckContext> {
        let Seen { shares, http, .. } = &*self.seen;
        let (access, shares) = (self.reloader.access(), shares.clone());
        Arc::new(CheckContext { api, access, shares, counters: http.clone() })
    }

    fn resp_api(&self) -> Arc<RespApi> {
        let Seen { shares, resp, .. } = &*self.seen;
        Arc::new(RespApi {
            engine: self.engine.clone(),
            access: self.reloader.access(),
            shares: shares.clone(),
            counters: resp.clone(),
        })
    }

    fn open(&mut self, name: &'static str, serving: impl Future<Output = Stats> + Send + 'static) {
        self.listeners.spawn(async move {
            let stats = serving.await;
            let (accepted, ended) = (stats.accepted, stats.ended);
            tracing::info!(listener = name, accepted, ended, "listener closed");
        });
    }

    fn metrics_page(&self) -> axum::Router {
        let (telemetry, engine) = (self.telemetry.clone(), self.engine.clone());
        let (reloader, seen) = (self.reloader.clone(), self.seen.clone());
        let pages = Pages::of(move || metrics(&telemetry, &engine, &reloader.status(), seen.now(&reloader)));
        // Not an async closure: with optimization rustc 1.95 then needs its type for the length of an array in it (E0391).
        let page = move || {
            let pages = pages.clone();
            async move { ([(http::header::CONTENT_TYPE, METRICS_CONTENT_TYPE)], pages.next().await) }
        };
        axum::Router::new().route("/metrics", axum::routing::get(page))
    }

    /// Returns the address of the gRPC listener.
    pub fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// Returns the address of the HTTP listener, if there is one.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Returns the address of the RESP listener, if there is one.
    pub fn resp(&self) -> Option<SocketAddr> {
        self.resp
    }

    /// Returns the address of the metrics listener, if there is one.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Returns the engine behind the APIs.
    #[doc(hidden)]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the telemetry, which observes every decision.
    #[doc(hidden)]
    pub fn telemetry(&self) -> &Arc<ServerTelemetry> {
        &self.telemetry
    }

    /// Returns the reloader of the policy file.
    #[doc(hidden)]
    pub fn reloader(&self) -> &Arc<Reloader> {
        &self.reloader
    }

    /// Checks the policy file, the token files and the certificates now, and logs the result.
    pub fn look_now(&self) -> impl Future<Output = ()> + Send + 'static {
        let control = self.control.clone();
        async move {
            control.look().await;
        }
    }

    /// Completes when an operator requests a stop over an API. The server reports not ready then, and still serves.
    pub fn drained(&self) -> impl Future<Output = ()> + Send + 'static {
        stops(self.control.stop.subscribe())
    }

    /// Sets readiness to not serving (`/readyz`, `grpc.health.v1`), so that load balancers choose another server.
    /// Requests are still served.
    pub fn begin_draining(&self) {
        self.engine.begin_draining();
    }

    /// Stops the server: rejects new requests, finishes those in flight, and returns leases and fetched units. Takes at
    /// most the grace and a few seconds.
    pub async fn stop(mut self) {
        let deadline = tokio::time::Instant::now() + self.grace;
        self.begin_draining();
        let _ = self.stop.send(true);
        // Streams of denials do not end on their own.
        self.telemetry.close();
        while self.listeners.join_next().await.is_some() {}
        self.engine.drain(deadline.saturating_duration_since(tokio::time::Instant::now())).await;
        self.traces.stop().await;
    }
}

/// Completes when the server stops.
async fn stops(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Accepts connections of a socket that stays open for its owner.
fn adopt(socket: &std::net::TcpListener) -> std::io::Result<TcpListener> {
    let socket = socket.try_clone()?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}
