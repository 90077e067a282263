//! The engines behind a server, and their faults.

use anyhow::Result;

use super::cluster::Cluster;
use super::pooler::Pooled;
use super::sentinel::Sentinels;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::failover) enum Kind {
    Sentinel,
    Cluster,
    Pooler,
}

impl Kind {
    pub(in crate::failover) const ALL: [Self; 3] = [Self::Sentinel, Self::Cluster, Self::Pooler];

    pub(in crate::failover) fn name(self) -> &'static str {
        match self {
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Pooler => "pgbouncer",
        }
    }
}

/// A fault of a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is killed, and its replica takes over.
    Kill,
    /// Its replica misses charges for a while; then it is killed, and the replica takes over.
    Stall,
    /// It is killed and started again: Redis empty, PostgreSQL with all that it acknowledged.
    Restart,
    /// An operator switches to the replica while it lives.
    Switch,
}

impl Fault {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stall => "stall + kill",
            Self::Restart => "restart",
            Self::Switch => "switch",
        }
    }

    /// Returns `true` if charges are certainly lost.
    pub(super) fn loses(self) -> bool {
        matches!(self, Self::Stall | Self::Restart)
    }
}

const OF_REDIS: [Fault; 4] = [Fault::Kill, Fault::Stall, Fault::Restart, Fault::Switch];
const OF_POSTGRES: [Fault; 2] = [Fault::Restart, Fault::Stall];

pub(super) enum Engine {
    Sentinel(Box<Sentinels>),
    Cluster(Cluster),
    Pooler(Box<Pooled>),
}

impl Engine {
    /// Starts the servers. With `fences` a primary that is replaced stops accepting writes in time.
    pub(super) async fn start(kind: Kind, fences: bool) -> Result<Self> {
        Ok(match kind {
            Kind::Sentinel => Self::Sentinel(Box::new(Sentinels::start(fences).await?)),
            Kind::Cluster => Self::Cluster(Cluster::start().await?),
            Kind::Pooler => Self::Pooler(Box::new(Pooled::start())),
        })
    }

    pub(super) fn name(&self) -> &'static str {
        let kind = match self {
            Self::Sentinel(_) => Kind::Sentinel,
            Self::Cluster(_) => Kind::Cluster,
            Self::Pooler(_) => Kind::Pooler,
        };
        kind.name()
    }

    pub(super) fn faults(&self) -> &'static [Fault] {
        if matches!(self, Self::Pooler(_)) { &OF_POSTGRES } else { &OF_REDIS }
    }

    /// Returns the options of the server for this store.
    pub(super) fn args(&self) -> Vec<String> {
        match self {
            Self::Sentinel(sentinels) => vec!["--store".into(), sentinels.url()],
            Self::Cluster(cluster) => vec!["--store".into(), cluster.url()],
            Self::Pooler(pooled) => {
                vec!["--store".into(), pooled.url(), "--store-pooled".into(), "--migrate".into()]
            }
        }
    }

    /// Prepares a primary with a replica in sync.
    pub(super) async fn prepare(&mut self, fault: Fault) -> Result<()> {
        match self {
            Self::Sentinel(sentinels) => sentinels.prepare().await,
            Self::Cluster(cluster) => cluster.prepare().await,
            Self::Pooler(pooled) => tokio::task::block_in_place(|| pooled.prepare(fault)),
        }
    }

    /// Returns the number of the last failover. An engine may begin one without a fault, if the machine is too busy.
    pub(super) async fn failovers(&self) -> Result<u64> {
        match self {
            Self::Sentinel(sentinels) => sentinels.epoch().await,
            Self::Cluster(_) | Self::Pooler(_) => Ok(0),
        }
    }

    /// Stops the replica, so that it receives no charges from now on.
    pub(super) async fn cut_off(&mut self) -> Result<()> {
        match self {
            Self::Sentinel(sentinels) => sentinels.cut_off().await,
            Self::Cluster(cluster) => cluster.cut_off().await,
            Self::Pooler(pooled) => tokio::task::block_in_place(|| pooled.cut_off()),
        }
    }

    /// Breaks the primary. Returns when there is one again, and its former one is a replica if it can be.
    pub(super) async fn strike(&mut self, fault: Fault) -> Result<()> {
        match self {
            Self::Sentinel(sentinels) => sentinels.strike(fault).await,
            Self::Cluster(cluster) => cluster.strike(fault).await,
            Self::Pooler(pooled) => tokio::task::block_in_place(|| pooled.strike(fault)),
        }
    }
}
