//! The primary that the Sentinels report.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use throttlekit::internals::RwLock;
use throttlekit::store::{StoreClientStats, StoreError};
use tokio::time::timeout;

use crate::connect::Connector;
use crate::node::{Node, Setup};
use crate::route::Route;

/// Timeout for the response of a Sentinel.
const LOOK_MAX: Duration = Duration::from_millis(300);

pub(crate) struct Sentinels {
    sentinels: Vec<Connector>,
    service: String,
    /// Credentials and TLS of the servers.
    servers: Connector,
    setup: Setup,
    primary: RwLock<Primary>,
}

#[derive(Default)]
struct Primary {
    node: Option<Arc<Node>>,
    /// Statistics of former primaries, so that counters never decrease.
    retired: StoreClientStats,
}

impl Sentinels {
    pub(crate) fn new(sentinels: Vec<Connector>, service: String, servers: Connector, setup: Setup) -> Self {
        Self { sentinels, service, servers, setup, primary: RwLock::default() }
    }

    pub(crate) fn primary(&self) -> Result<Arc<Node>, StoreError> {
        let node = self.primary.read().node.clone();
        node.ok_or_else(|| {
            StoreError::unavailable(format_args!("no Sentinel reports a primary for {:?}", self.service))
        })
    }

    /// Returns the call statistics of the primary and its predecessors.
    pub(crate) fn stats(&self) -> StoreClientStats {
        let primary = self.primary.read();
        primary.node.iter().fold(primary.retired, |sum, node| sum.plus(node.stats()))
    }

    /// Queries all Sentinels at once and uses the address that most of them report.
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
        let mut primary = self.primary.write();
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
