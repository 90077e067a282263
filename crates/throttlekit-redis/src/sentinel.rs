//! The primary that Sentinels name.

use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use throttlekit::store::{LineStats, StoreError};
use tokio::time::timeout;

use crate::connect::Connector;
use crate::node::{Node, Setup};
use crate::route::Route;

/// How long a Sentinel may take to answer.
const LOOK_MAX: Duration = Duration::from_millis(300);

pub(crate) struct Sentinels {
    sentinels: Vec<Connector>,
    service: String,
    /// How the servers themselves are reached.
    servers: Connector,
    setup: Setup,
    primary: RwLock<Primary>,
}

#[derive(Default)]
struct Primary {
    node: Option<Arc<Node>>,
    /// What the lines to its predecessors saw: a count does not shrink.
    retired: LineStats,
}

impl Sentinels {
    pub(crate) fn new(sentinels: Vec<Connector>, service: String, servers: Connector, setup: Setup) -> Self {
        Self { sentinels, service, servers, setup, primary: RwLock::default() }
    }

    pub(crate) fn primary(&self) -> Result<Arc<Node>, StoreError> {
        let node = self.primary.read().unwrap_or_else(PoisonError::into_inner).node.clone();
        node.ok_or_else(|| {
            StoreError::unavailable(format_args!("no Sentinel names a primary for {:?}", self.service))
        })
    }

    /// What the lines to the primary and its predecessors have seen.
    pub(crate) fn stats(&self) -> LineStats {
        let primary = self.primary.read().unwrap_or_else(PoisonError::into_inner);
        primary.node.iter().fold(primary.retired, |sum, node| sum.plus(node.stats()))
    }

    /// Asks all Sentinels at once and takes the address that most of them name.
    pub(crate) async fn look(&self, route: &Weak<Route>) {
        let named = join_all(self.sentinels.iter().map(|sentinel| self.ask(sentinel))).await;
        let named: Vec<String> = named.into_iter().flatten().collect();
        let votes = |address: &String| named.iter().filter(|other| *other == address).count();
        let Some(address) = named.iter().max_by_key(|address| votes(address)) else { return };
        if self.primary().is_ok_and(|node| node.address == *address) {
            return;
        }
        let Ok(client) = self.servers.client(address) else { return };
        let node = Node::new(address.clone(), &client, &self.setup, route.clone());
        let mut primary = self.primary.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(former) = primary.node.replace(node) {
            primary.retired = primary.retired.plus(former.stats().past());
        }
    }

    async fn ask(&self, sentinel: &Connector) -> Option<String> {
        let asked = async {
            let mut connection = sentinel.seed().ok()?.get_multiplexed_async_connection().await.ok()?;
            let mut cmd = redis::cmd("SENTINEL");
            cmd.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
            let (host, port): (String, u16) = cmd.query_async(&mut connection).await.ok()?;
            Some(format!("{host}:{port}"))
        };
        timeout(LOOK_MAX, asked).await.ok().flatten()
    }
}
