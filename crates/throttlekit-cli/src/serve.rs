//! `throttlekit serve`.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use throttlekit_server::internals::access::{PROXY_TOKEN, Secret, Secrets};
use throttlekit_server::internals::engine::Backend;
use throttlekit_server::internals::listen::{Tls, TlsFiles, judge_bind};
use throttlekit_server::internals::telemetry::{LogFormat, flush_logs, logs};
use throttlekit_server::{Server, ServerOptions, StoreUrl};
use tokio::task::JoinHandle;

use crate::file;
use crate::http2_args::Http2Args;
use crate::signals::{LAST_LINES_MAX, Signals, Wish};
use crate::store_args::{StoreArgs, store_fails};
use crate::systemd::{self, Manager};

/// Options of `throttlekit serve`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Policy file (docs/reference/policy-file.md); reloaded when it changes
    policies: PathBuf,
    /// Check the policy file, its secrets, the certificates, the store and all other options without listening, then
    /// exit; warns if the store does not respond
    #[arg(long)]
    check: bool,
    /// Serve gRPC at this address, including Envoy's rate limit service
    #[arg(long, default_value = "127.0.0.1:50051", value_name = "IP:PORT", value_parser = address)]
    listen: SocketAddr,
    /// Serve HTTP and JSON at this address; `off` to disable
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "IP:PORT")]
    http: At,
    /// Serve RESP with CL.THROTTLE at this address, for clients of Redis; `off` to disable
    #[arg(long, default_value = "off", value_name = "IP:PORT")]
    resp: At,
    /// Serve /metrics for Prometheus, and /healthz and /readyz for probes, at this address; `off` to disable
    #[arg(long, default_value = "127.0.0.1:9464", value_name = "IP:PORT")]
    metrics: At,
    /// Check the policy file for changes at this interval, in milliseconds
    #[arg(long, default_value_t = 1_000, value_name = "MS")]
    reload_every_ms: u64,
    /// Set the name of this instance in the monitor and within its region; unique among servers
    #[arg(long, default_value = "", value_name = "NAME")]
    node_id: String,
    /// Set the region of this process, for budgets that regions share; servers of one region need a --node-id
    #[arg(long, default_value = "default", value_name = "NAME")]
    region: String,
    /// Wait at most this long for requests in flight when the server stops, in seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    grace_s: u64,
    /// Keep serving for this long after SIGTERM while reporting not ready, in seconds; SIGINT skips it
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    lame_duck_s: u64,

    #[command(flatten)]
    store: StoreArgs,
    /// Create or upgrade the store's schema first, as `throttlekit migrate` does
    #[arg(long, help_heading = "Store")]
    migrate: bool,
    /// Limit the memory for keys if counts are kept in this process, in MiB; beyond it keys are estimated
    #[arg(long, default_value_t = 128, value_name = "MIB")]
    #[arg(help_heading = "Limits")]
    memory_budget_mib: usize,
    /// Limit the number of leases that clients hold at this instance
    #[arg(long, default_value_t = 100_000, value_name = "LEASES", help_heading = "Limits")]
    leases_max: u32,
    /// Limit the number of leases that one caller holds at this instance
    #[arg(long, default_value_t = 10_000, value_name = "LEASES", help_heading = "Limits")]
    leases_per_caller: u32,
    /// Grant slots immediately: no earlier process left clients that may still be using them
    #[arg(long, help_heading = "Limits")]
    fresh_start: bool,

    #[command(flatten)]
    http2: Http2Args,

    /// Use this server certificate, in PEM; requires --tls-key
    #[arg(long, value_name = "FILE", help_heading = "Who can connect")]
    tls_cert: Option<PathBuf>,
    /// Use this private key for the server certificate, in PEM
    #[arg(long, value_name = "FILE", help_heading = "Who can connect")]
    tls_key: Option<PathBuf>,
    /// Require client certificates that these CAs issued, in PEM
    #[arg(long, value_name = "FILE", help_heading = "Who can connect")]
    tls_client_ca: Option<PathBuf>,
    /// Require no client certificate on the --metrics listener, so that probes without one can reach /healthz and
    /// /readyz
    #[arg(long, requires = "tls_client_ca", help_heading = "Who can connect")]
    metrics_without_client_cert: bool,
    /// Listen on addresses beyond this machine without TLS
    #[arg(long, help_heading = "Who can connect")]
    allow_plaintext: bool,
    /// Set the number of proxies in front of the HTTP API
    #[arg(long, default_value_t = 0, value_name = "COUNT", help_heading = "Who can connect")]
    trusted_hops: u8,
    /// Read a forward-auth proxy's own token from this header
    #[arg(long, default_value_t = PROXY_TOKEN, value_name = "NAME", value_parser = proxy_header)]
    #[arg(help_heading = "Who can connect")]
    proxy_token_header: HeaderName,

    /// Read the secret of the monitor from this file; else from THROTTLEKIT_MONITOR_SECRET, else nobody may use it
    #[arg(long, value_name = "FILE", help_heading = "What callers see")]
    monitor_secret_file: Option<PathBuf>,
    /// Read the secret for reservations from this file; else from THROTTLEKIT_FLEET_SECRET, else nobody may reserve
    #[arg(long, value_name = "FILE", help_heading = "What callers see")]
    fleet_secret_file: Option<PathBuf>,
    /// Let callers on this machine use the monitor and reserve without a secret if none is configured; behind a proxy
    /// on this machine, that is every caller
    #[arg(long, help_heading = "What callers see")]
    trust_loopback: bool,
    /// Enable gRPC server reflection (grpc.reflection.v1)
    #[arg(long, help_heading = "What callers see")]
    reflection: bool,
    /// Show keys as hashes in the monitor
    #[arg(long, help_heading = "What callers see")]
    hash_keys: bool,

    /// Send traces and counters to the OpenTelemetry collector at this address, such as http://127.0.0.1:4317
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL", help_heading = "Traces")]
    otlp: Option<String>,

    /// Set the log filter: `info`, `debug`, `throttlekit_server=debug,warn` …
    #[arg(long, default_value = "info", value_name = "FILTER", help_heading = "Logs")]
    log: String,
    /// Log in JSON
    #[arg(long, help_heading = "Logs")]
    log_json: bool,
}

const EXAMPLES: &str = "\
Examples:
  throttlekit serve policies.yaml
  throttlekit serve policies.yaml --store redis://127.0.0.1:6379
  throttlekit serve policies.yaml --listen 0.0.0.0:50051 --http 0.0.0.0:8080 --tls-cert server.pem --tls-key server.key

SIGTERM stops the server: requests in flight finish, and units and slots that it holds are returned. SIGHUP reloads the policy file, tokens and certificates. See docs/operate/runbook.md for operations. Under systemd, readiness and the watchdog are reported, and passed sockets are used: docs/operate/systemd.md.";

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    // First, while there is one thread: it changes the environment.
    let sockets = systemd::sockets()?;
    logs(if args.log_json { LogFormat::Json } else { LogFormat::Text }, &args.log)
        .map_err(anyhow::Error::msg)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // Polls sockets after every task: a caller that sends little must not wait for sixty tasks of others.
    let runtime = runtime.enable_all().event_interval(1).build()?;
    let served = runtime.block_on(serve(args, sockets));
    flush_logs(LAST_LINES_MAX);
    served
}

async fn serve(args: Args, sockets: Vec<TcpListener>) -> anyhow::Result<()> {
    let manager = Arc::new(Manager::from_env());
    // First, since mistakes in the file are the most common. The server reads it again, so it cannot be a pipe.
    file::check_regular(&args.policies)?;
    file::policies(&args.policies)?;
    let files = TlsFiles { cert: args.tls_cert, key: args.tls_key, client_ca: args.tls_client_ca };
    let tls = Tls::load(&files).map_err(anyhow::Error::msg)?;
    for address in [Some(args.listen), args.http.0, args.resp.0, args.metrics.0].into_iter().flatten() {
        let warning = judge_bind(address, tls.is_some(), args.allow_plaintext).map_err(anyhow::Error::msg)?;
        warning.iter().for_each(|warning| tracing::warn!("{warning}"));
    }
    let secrets = Secrets {
        monitor: secret(args.monitor_secret_file.as_deref(), "THROTTLEKIT_MONITOR_SECRET")?,
        fleet: secret(args.fleet_secret_file.as_deref(), "THROTTLEKIT_FLEET_SECRET")?,
        trust_loopback: args.trust_loopback,
    };
    let (url, store_options) = args.store.load()?;
    if args.migrate && !args.check {
        url.migrate(&store_options).await.map_err(|error| store_fails(&url, &error))?;
    }
    let backend = url.connect(&store_options).await.map_err(|error| store_fails(&url, &error))?;
    let memory_budget = args.memory_budget_mib.saturating_mul(1 << 20);
    let backend = match url {
        StoreUrl::Memory => Backend::memory_within(memory_budget),
        _ => backend,
    };
    if args.check {
        // Lists every secret that cannot be read, where a start fails with the first.
        file::secrets(&args.policies)?;
    }
    let mut options = ServerOptions::new(args.policies, backend);
    options.reload_every = Duration::from_millis(args.reload_every_ms.max(10));
    options.engine.region = args.region;
    options.engine.instance.clone_from(&args.node_id);
    options.engine.leases_max = args.leases_max;
    options.engine.leases_per_principal_max = args.leases_per_caller;
    options.telemetry.node_id = args.node_id;
    options.telemetry.hash_keys = args.hash_keys;
    options.sockets = sockets.into_iter().map(Arc::new).collect();
    (options.grpc, options.http, options.metrics) = (args.listen, args.http.0, args.metrics.0);
    options.resp = args.resp.0;
    (options.trusted_hops, options.secrets) = (args.trusted_hops, secrets);
    options.proxy_token = args.proxy_token_header;
    (options.tls, options.reflection) = (tls, args.reflection);
    options.metrics_without_certificates = args.metrics_without_client_cert;
    options.limits.grace = Duration::from_secs(args.grace_s);
    args.http2.apply(&mut options.limits);
    #[cfg(feature = "otlp")]
    {
        options.otlp = args.otlp;
    }
    options.engine.recovers = !args.fresh_start;
    options.process.memory_budget_bytes = (url == StoreUrl::Memory).then_some(memory_budget);
    options.process.lame_duck = Duration::from_secs(args.lame_duck_s);
    (options.process.log, options.process.log_json) = (args.log, args.log_json);
    options.process.store = Some((url.clone(), store_options));
    if args.check {
        return check(&options, &url).await;
    }
    let mut signals = Signals::listen()?;
    let server = Server::start(options).await.map_err(anyhow::Error::msg)?;
    let shown = |address: Option<SocketAddr>| address.map_or("off".into(), |address| address.to_string());
    tracing::info!(
        policies = server.engine().policies().len(),
        store = url.kind(),
        grpc = %server.grpc(),
        http = shown(server.http()),
        resp = shown(server.resp()),
        metrics = shown(server.metrics()),
        "server started"
    );
    if url == StoreUrl::Memory {
        tracing::info!(
            "counts kept in memory: not shared with other servers, lost at exit; set --store to share them"
        );
    }
    if !server.engine().probe().await {
        tracing::warn!(
            store = url.kind(),
            "store unavailable: policies apply `on_outage` until it responds; check that it runs and that \
             --store is correct"
        );
    }
    manager.ready();
    let alive = manager.clone();
    tokio::spawn(async move { alive.keep_alive().await });
    let lame_duck = match until_stopped(&server, &mut signals, &manager).await {
        Wish::StopNow => Duration::ZERO,
        _ => Duration::from_secs(args.lame_duck_s),
    };
    manager.stopping();
    tokio::spawn(signals.end_at_next());
    if !lame_duck.is_zero() {
        tracing::info!(lame_duck_s = args.lame_duck_s, "lame duck started: not ready, still serving");
        server.begin_draining();
        tokio::time::sleep(lame_duck).await;
    }
    tracing::info!("stopping: no new requests, requests in flight finish");
    server.stop().await;
    Ok(())
}

/// Validates the options, and prints the result. An unavailable store is no error, since a server starts without it.
async fn check(options: &ServerOptions, url: &StoreUrl) -> anyhow::Result<()> {
    let checked = options.check().await.map_err(anyhow::Error::msg)?;
    checked.warnings.iter().for_each(|warning| println!("warning: {warning}"));
    let (file, store) = (options.policies.display(), url.kind());
    match checked.store_error {
        None => println!("{file}: ready to serve, counts in {store}"),
        Some(error) => println!(
            "warning: {file}: valid, but the store ({store}) cannot be used now: {error}: a server starts and policies \
             apply `on_outage` until it responds; check that it runs and that --store is correct"
        ),
    }
    Ok(())
}

/// Checks the files at each SIGHUP, until a signal or an operator requests a stop. Files that hang do not delay signals.
async fn until_stopped(server: &Server, signals: &mut Signals, manager: &Arc<Manager>) -> Wish {
    let mut looking: Option<JoinHandle<()>> = None;
    let drained = server.drained();
    tokio::pin!(drained);
    loop {
        let wish = tokio::select! {
            biased;
            wish = signals.next() => wish,
            () = &mut drained => Wish::Stop,
        };
        match wish {
            Wish::Look if looking.as_ref().is_some_and(|looking| !looking.is_finished()) => {
                tracing::warn!("SIGHUP ignored: files are still being read");
            }
            Wish::Look => {
                tracing::info!("SIGHUP: reloading the policy file, tokens and certificates");
                manager.reloading();
                let (look, manager) = (server.look_now(), manager.clone());
                looking = Some(tokio::spawn(async move {
                    look.await;
                    manager.ready();
                }));
            }
            stop => return stop,
        }
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, such as 127.0.0.1:50051".into())
}

/// Address of a listener that can be disabled.
#[derive(Clone, Copy, Debug)]
struct At(Option<SocketAddr>);

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        address(text).map(|address| Self(Some(address))).map_err(|wrong| format!("{wrong}, or `off`"))
    }
}

/// Parses the name of the proxy token header. Rejects headers that carry the clients' own credentials.
fn proxy_header(text: &str) -> Result<HeaderName, String> {
    let name: HeaderName = text.parse().map_err(|_| "invalid header name")?;
    if [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(&name) {
        return Err("clients send their own credentials in this header: choose another".into());
    }
    Ok(name)
}

/// Reads a secret from a file or the environment, never from the command line, which others can read.
fn secret(file: Option<&Path>, variable: &str) -> anyhow::Result<Option<Secret>> {
    let found = match file {
        Some(path) => Secret::in_file(path).map(Some),
        None if std::env::var_os(variable).is_some() => Secret::in_env(variable).map(Some),
        None => Ok(None),
    };
    found.map_err(anyhow::Error::msg)
}
