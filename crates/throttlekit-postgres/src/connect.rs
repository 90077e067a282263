//! Opening connections and canceling statements.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::store::StoreError;
use tokio::time::timeout;
use tokio_postgres::config::{LoadBalanceHosts, TargetSessionAttrs};
use tokio_postgres::{CancelToken, Client, Config, NoTls};

use crate::error::from_server;

/// Timeout for connecting to each host, however short the deadline of calls: it may be far away and use TLS.
const HOST_MAX: Duration = Duration::from_secs(2);
/// Timeout for a cancel request. A lost one is repeated.
const CANCEL_MAX: Duration = Duration::from_secs(1);
/// Time without acknowledgment after which a peer is considered dead. A server that is stopped or whose commits hang
/// still acknowledges.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(1);
const KEEPALIVES_LOST_MAX: u32 = 5;

/// The future that drives a connection. It ends when the connection does.
pub(crate) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The address of a server and of those that may replace it.
pub(crate) struct Connector {
    whole: Config,
    /// Each host of the address separately, in its order.
    hosts: Vec<Config>,
    /// The host to try first, by its index plus one. Zero: in the order of the address.
    preferred: AtomicUsize,
    tls: Tls,
    pooled: bool,
}

/// The encryption of connections.
#[derive(Clone)]
pub(crate) enum Tls {
    Off,
    #[cfg(feature = "tls")]
    On(tokio_postgres_rustls::MakeRustlsConnect),
}

impl Connector {
    pub(crate) fn new(mut config: Config, tls: Tls, pooled: bool) -> Self {
        detect_dead_peers(&mut config);
        let count = config.get_hosts().len().max(config.get_hostaddrs().len());
        let hosts = (0..count).map(|place| only(&config, place)).collect();
        Self { whole: config, hosts, preferred: AtomicUsize::new(0), tls, pooled }
    }

    /// Opens a connection to the preferred host, or else to the first that accepts one.
    pub(crate) async fn dial(&self) -> Result<(Client, Driver), StoreError> {
        let preferred = self.preferred.load(Relaxed).checked_sub(1).and_then(|place| self.hosts.get(place));
        if let Some(preferred) = preferred
            && let Ok(dialled) = self.connect(preferred, HOST_MAX).await
        {
            return Ok(dialled);
        }
        self.connect(&self.whole, self.dial_max()).await
    }

    /// Returns the number of hosts in the address.
    pub(crate) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Opens a connection to one host, primary or not.
    pub(crate) async fn dial_host(&self, place: usize) -> Result<(Client, Driver), StoreError> {
        let mut config = self.hosts[place].clone();
        config.target_session_attrs(TargetSessionAttrs::Any);
        self.connect(&config, HOST_MAX).await
    }

    /// Prefers this host from now on.
    pub(crate) fn prefer(&self, place: usize) {
        self.preferred.store(place + 1, Relaxed);
    }

    /// Requests cancellation of the statement that runs on a connection. Delivery of the request does not mean that the
    /// statement has ended, nor that the request has been processed yet.
    ///
    /// Does nothing behind a pooler: the client library closes the connection of a cancel request before the peer does,
    /// and PgBouncer up to 1.20 may exit on that, for all clients (pgbouncer/pgbouncer#801).
    pub(crate) async fn cancel(&self, token: &CancelToken) {
        if self.pooled {
            return;
        }
        let cancel = async {
            match &self.tls {
                Tls::Off => token.cancel_query(NoTls).await,
                #[cfg(feature = "tls")]
                Tls::On(tls) => token.cancel_query(tls.clone()).await,
            }
        };
        // The task that waits for the end of the statement retries on failure.
        let _ = timeout(CANCEL_MAX, cancel).await;
    }

    fn dial_max(&self) -> Duration {
        HOST_MAX * self.hosts.len().max(1) as u32
    }

    async fn connect(&self, config: &Config, max: Duration) -> Result<(Client, Driver), StoreError> {
        let connect = async {
            match &self.tls {
                Tls::Off => config
                    .connect(NoTls)
                    .await
                    .map(|(client, driver)| (client, boxed(async { _ = driver.await }))),
                #[cfg(feature = "tls")]
                Tls::On(tls) => {
                    let connected = config.connect(tls.clone()).await;
                    connected.map(|(client, driver)| (client, boxed(async { _ = driver.await })))
                }
            }
        };
        let connected = timeout(max, connect).await.map_err(|_| StoreError::Deadline(max))?;
        connected.map_err(|error| from_server(&error, max))
    }
}

fn boxed(driver: impl Future<Output = ()> + Send + 'static) -> Driver {
    Box::pin(driver)
}

/// Lets the kernel close connections with dead peers, unless the address configures otherwise. Without it a connection
/// that a firewall dropped would count as open for hours.
fn detect_dead_peers(config: &mut Config) {
    let untouched = Config::new();
    if config.get_keepalives() && config.get_keepalives_idle() == untouched.get_keepalives_idle() {
        config.keepalives_idle(KEEPALIVE_EVERY);
        config.keepalives_interval(KEEPALIVE_EVERY).keepalives_retries(KEEPALIVES_LOST_MAX);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNACKNOWLEDGED_MAX);
    }
}

/// Returns the same address with one of its hosts.
fn only(all: &Config, place: usize) -> Config {
    let mut one = Config::new();
    if let Some(host) = all.get_hosts().get(place) {
        match host {
            tokio_postgres::config::Host::Tcp(name) => one.host(name),
            #[cfg(unix)]
            tokio_postgres::config::Host::Unix(path) => one.host_path(path),
        };
    }
    if let Some(address) = all.get_hostaddrs().get(place) {
        one.hostaddr(*address);
    }
    if let Some(port) = all.get_ports().get(place).or_else(|| all.get_ports().first()) {
        one.port(*port);
    }
    copy(all.get_user(), |user| _ = one.user(user));
    copy(all.get_password(), |password| _ = one.password(password));
    copy(all.get_dbname(), |name| _ = one.dbname(name));
    copy(all.get_options(), |options| _ = one.options(options));
    copy(all.get_application_name(), |name| _ = one.application_name(name));
    copy(all.get_connect_timeout(), |max| _ = one.connect_timeout(*max));
    copy(all.get_tcp_user_timeout(), |max| _ = one.tcp_user_timeout(*max));
    copy(all.get_keepalives_interval(), |every| _ = one.keepalives_interval(every));
    copy(all.get_keepalives_retries(), |most| _ = one.keepalives_retries(most));
    one.keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle())
        .ssl_mode(all.get_ssl_mode())
        .ssl_negotiation(all.get_ssl_negotiation())
        .channel_binding(all.get_channel_binding())
        .target_session_attrs(all.get_target_session_attrs())
        .load_balance_hosts(LoadBalanceHosts::Disable);
    one
}

fn copy<T>(value: Option<T>, set: impl FnOnce(T)) {
    if let Some(value) = value {
        set(value);
    }
}
