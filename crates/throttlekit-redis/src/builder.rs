//! The builder of a store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use throttlekit::clock::ManualClock;
use throttlekit::store::{Background, StoreClientOptions, StoreError};
use tokio::runtime::Handle;

use crate::cluster::Cluster;
use crate::connect::{Connector, TlsFiles};
use crate::exposure::FailoverRecords;
use crate::failover::Failover;
use crate::node::{Node, Setup};
use crate::route::{Route, Topology};
use crate::sentinel::Sentinels;
use crate::server_check::Demands;
use crate::store::RedisStore;

/// Default for [`RedisStoreBuilder::grace`]: time that a state without effect is kept, the largest step back of a clock.
const GRACE: Duration = Duration::from_secs(10);

/// Maximum grace period: the server rejects longer expiries.
const GRACE_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Configures connections, timeouts and failover handling of a [`RedisStore`].
///
/// ```no_run
/// # async fn example() -> Result<(), throttlekit::store::StoreError> {
/// use std::time::Duration;
/// use throttlekit_redis::RedisStore;
///
/// let cluster = RedisStore::cluster(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"])
///     .deadline(Duration::from_millis(50))
///     .connect()
///     .await?;
/// # drop(cluster);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisStoreBuilder {
    urls: Vec<String>,
    kind: Kind,
    tls: TlsFiles,
    servers: Option<String>,
    line: StoreClientOptions,
    background: Background,
    grace: Duration,
    clock: Option<ManualClock>,
    failover: Failover,
}

#[derive(Debug)]
enum Kind {
    Single,
    Cluster,
    Sentinel { service: String },
}

impl RedisStoreBuilder {
    pub(crate) fn single(url: String) -> Self {
        Self::of(Kind::Single, vec![url])
    }

    pub(crate) fn cluster(urls: Vec<String>) -> Self {
        Self::of(Kind::Cluster, urls)
    }

    pub(crate) fn sentinel(urls: Vec<String>, service: String) -> Self {
        Self::of(Kind::Sentinel { service }, urls)
    }

    fn of(kind: Kind, urls: Vec<String>) -> Self {
        Self {
            urls,
            kind,
            tls: TlsFiles::default(),
            servers: None,
            line: StoreClientOptions::default(),
            background: Background::default(),
            grace: GRACE,
            clock: None,
            failover: Failover::default(),
        }
    }

    /// Sets the timeout of a call. Default: 100 ms. A call that a cluster node redirects gets the same time again, and
    /// so does one that is retried while its keys are migrating.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.line.deadline = deadline;
        self
    }

    /// Sets the maximum number of pending calls per node; further calls are rejected immediately. Default: 10,000.
    pub fn in_flight_max(mut self, calls: usize) -> Self {
        self.line.in_flight_max = calls;
        self
    }

    /// Sets the number of consecutive outages that open a node's circuit breaker (default: 5) and the interval of
    /// probes while it is open (default: 100 ms).
    pub fn breaker(mut self, opens_after: u32, probe_every: Duration) -> Self {
        self.line.opens_after = opens_after;
        self.line.probe_every = probe_every;
        self
    }

    /// Runs connections, calls and all background work of the store, and of everything built on it, on your runtime,
    /// which must be driven for as long as the store is used. Default: a driver thread of the process.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.background = self.background.on(runtime);
        self
    }

    /// Sets the certificate authority (PEM) that signs the servers' certificates. Default: those of the system.
    pub fn ca(mut self, pem: Vec<u8>) -> Self {
        self.tls.ca = Some(pem);
        self
    }

    /// Presents this client certificate (PEM) with its private key (PEM) to the servers.
    pub fn identity(mut self, certificate: Vec<u8>, key: Vec<u8>) -> Self {
        self.tls.identity = Some((certificate, key));
        self
    }

    /// Sets the address whose scheme, user and password apply to all servers that the Sentinels report.
    pub fn servers(mut self, url: &str) -> Self {
        self.servers = Some(url.to_owned());
        self
    }

    /// Sets how long a state without effect is kept. Default: 10 s. Maximum: a year. A server's clock may step forward
    /// and back by this much without a key getting a fresh budget.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace.min(GRACE_MAX);
        self
    }

    /// Sets the handling of charges that a failover may lose, see [`Failover`]. Default: `Async` without sampling.
    pub fn failover(mut self, failover: Failover) -> Self {
        self.failover = failover;
        self
    }

    /// Decides at the time of this clock instead of the server's. For tests.
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Rejects a mix of addresses with and without TLS, and options that do not apply.
    fn refuse_halves(&self, connectors: &[Connector]) -> Result<(), StoreError> {
        let with_tls = connectors.iter().filter(|connector| connector.has_tls()).count();
        let no = |why: &str| Err(StoreError::misconfigured(why));
        match &self.kind {
            _ if with_tls != 0 && with_tls != connectors.len() => {
                no("addresses mix rediss:// and redis://: use one scheme for all")
            }
            Kind::Sentinel { .. } if with_tls != 0 && self.servers.is_none() => {
                no("the Sentinels use TLS: set the scheme and credentials of the servers with `servers`")
            }
            Kind::Sentinel { .. } => Ok(()),
            _ if self.servers.is_some() => no("`servers` applies to Sentinels only"),
            _ if !self.tls.is_empty() && with_tls == 0 => no("certificates require a rediss:// address"),
            _ => Ok(()),
        }
    }

    /// Connects and returns the store.
    ///
    /// A server whose configuration breaks a guarantee is an error. An unreachable server is not: the store starts as
    /// in an outage, and checks the server when it becomes reachable.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let connectors: Vec<Connector> =
            self.urls.iter().map(|url| Connector::new(url, self.tls.clone())).collect::<Result<_, _>>()?;
        let Some(first) = connectors.first().cloned() else {
            return Err(StoreError::misconfigured("no address: pass at least one URL"));
        };
        self.refuse_halves(&connectors)?;
        self.failover.refuse_nonsense(self.line.deadline)?;
        let setup = self.setup();
        // A script may have to be sent in full, and once more to another node.
        let sends = if matches!(self.kind, Kind::Cluster) { 4 } else { 2 };
        let deadline = self.line.deadline.saturating_mul(sends);
        let (books, background) = (setup.books.clone(), setup.background.clone().with_deadline(deadline));
        let route = match self.kind {
            Kind::Single => {
                let client = first.seed()?;
                let node = |me: &Weak<Route>| Node::new(first.address(), &client, &setup, me.clone());
                Route::new(background, |me| Topology::Single(node(me)))
            }
            Kind::Cluster => {
                Route::new(background, |_| Topology::Cluster(Box::new(Cluster::new(connectors, setup))))
            }
            Kind::Sentinel { service } => {
                let servers = self.servers.as_deref().unwrap_or(DEFAULT_SERVERS);
                let servers = Connector::new(servers, self.tls)?;
                let sentinels = Sentinels::new(connectors, service, servers, setup);
                Route::new(background, |_| Topology::Sentinel(Box::new(sentinels)))
            }
        };
        let starting = route.clone();
        route.background().run_attached(async move { start(&starting).await }).await??;
        if let Some(every) = self.failover.sample() {
            route.background().spawn(sample(Arc::downgrade(&route), every));
        }
        Ok(RedisStore::new(route, self.grace, self.clock, self.failover, books))
    }

    fn setup(&self) -> Setup {
        let demands = Demands {
            fenced: self.failover.isolation().is_some(),
            waited: matches!(self.failover, Failover::Wait { .. }),
            told: self.failover.sample().is_some(),
            in_cluster: matches!(self.kind, Kind::Cluster),
            behind_sentinel: matches!(self.kind, Kind::Sentinel { .. }),
        };
        let books = demands.told.then(|| Arc::new(FailoverRecords::default()));
        let background = self.background.clone();
        Setup { line: self.line, background, failover: self.failover, demands, books }
    }
}

/// Samples the replication offsets of all primaries until the store is dropped.
async fn sample(route: Weak<Route>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(route) = route.upgrade() else { return };
        join_all(route.nodes().iter().map(|node| node.sample())).await;
    }
}

/// Default for [`RedisStoreBuilder::servers`]: no TLS, no credentials.
const DEFAULT_SERVERS: &str = "redis://localhost";

/// Discovers the nodes and checks those that respond.
async fn start(route: &Route) -> Result<(), StoreError> {
    route.look_again().await;
    for node in route.nodes() {
        match node.check().await {
            Err(error) if error.is_outage() => node.give_up(),
            checked => checked?,
        }
    }
    Ok(())
}
