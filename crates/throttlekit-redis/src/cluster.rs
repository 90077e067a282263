//! The slot map of a cluster: the primary of each slot.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use throttlekit::internals::RwLock;
use throttlekit::store::{StoreClientStats, StoreError};
use tokio::time::timeout;

use crate::connect::Connector;
use crate::hash_slot::SLOTS;
use crate::node::{Node, Setup};
use crate::route::Route;

/// Timeout for the view of a seed node, connecting included.
const SEED_VIEW_MAX: Duration = Duration::from_millis(500);
/// Maximum number of nodes in a cluster. Redis advises against more than a thousand.
const NODES_MAX: usize = 2_048;

pub(crate) struct Cluster {
    connectors: Vec<Connector>,
    setup: Setup,
    map: RwLock<Map>,
}

/// Slots by the address of their primary, and the nodes connected so far.
#[derive(Default)]
struct Map {
    owners: Vec<Option<Arc<Node>>>,
    nodes: HashMap<String, Arc<Node>>,
    /// Statistics of nodes that are no longer used, so that counters never decrease.
    retired: StoreClientStats,
}

/// One node's view: ranges of slots and their primaries.
type View = Vec<(u16, u16, String)>;

impl Cluster {
    pub(crate) fn new(connectors: Vec<Connector>, setup: Setup) -> Self {
        Self { connectors, setup, map: RwLock::default() }
    }

    pub(crate) fn node(&self, slot: u16) -> Option<Arc<Node>> {
        self.map.read().owners.get(usize::from(slot)).cloned().flatten()
    }

    pub(crate) fn uses(&self, address: &str) -> bool {
        self.map.read().owners.iter().flatten().any(|node| node.address == address)
    }

    /// Returns the primaries.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        let map = self.map.read();
        map.nodes
            .values()
            .filter(|node| map.owners.iter().flatten().any(|o| Arc::ptr_eq(o, node)))
            .cloned()
            .collect()
    }

    /// Returns the call statistics of all nodes, former nodes included.
    pub(crate) fn stats(&self) -> StoreClientStats {
        let map = self.map.read();
        map.nodes.values().fold(map.retired, |sum, node| sum.plus(node.stats()))
    }

    /// Records that a slot has moved, and returns its new node.
    pub(crate) fn moved(&self, slot: u16, to: &str, route: &Weak<Route>) -> Result<Arc<Node>, StoreError> {
        let node = self.at(to, route)?;
        if let Some(owner) = self.map.write().owners.get_mut(usize::from(slot)) {
            *owner = Some(node.clone());
        }
        Ok(node)
    }

    /// Returns the node at an address, and creates it if it is new.
    pub(crate) fn at(&self, address: &str, route: &Weak<Route>) -> Result<Arc<Node>, StoreError> {
        if let Some(node) = self.map.read().nodes.get(address) {
            return Ok(node.clone());
        }
        let client = self.connectors[0].client(address)?;
        let mut map = self.map.write();
        if map.nodes.len() >= NODES_MAX {
            return Err(StoreError::misconfigured(format_args!(
                "the cluster reports more than {NODES_MAX} nodes"
            )));
        }
        let make = || Node::new(address.to_owned(), &client, &self.setup, route.clone());
        Ok(map.nodes.entry(address.to_owned()).or_insert_with(make).clone())
    }

    /// Requests the view of all nodes at once, and uses the one that assigns the fewest slots to unreachable nodes:
    /// after a failover some views are older than others. Nodes with an open circuit breaker are not waited for, unless
    /// all have one.
    pub(crate) async fn look(&self, route: &Weak<Route>) {
        let known: Vec<_> = self.map.read().nodes.values().cloned().collect();
        let all_away = known.iter().all(|node| node.is_away());
        let asked = known.iter().filter(|node| all_away || !node.is_away());
        let of_known = asked.map(|node| async { (node.view().await, node.address.clone()) });
        let mut views: Vec<_> = join_all(of_known).await;
        if views.iter().all(|(view, _)| view.is_none()) {
            let of_seeds = self
                .connectors
                .iter()
                .map(|connector| async { (view_of(connector).await, connector.address()) });
            views = join_all(of_seeds).await;
        }
        let views = views.into_iter().filter_map(|(view, from)| parse(&view?, &from));
        let silent = |address: &str| known.iter().any(|node| node.address == address && node.is_silent());
        let slots_of_silent = |view: &View| {
            view.iter()
                .filter(|(.., at)| silent(at))
                .map(|(first, last, _)| u32::from(last - first) + 1)
                .sum::<u32>()
        };
        if let Some(view) = views.min_by_key(slots_of_silent) {
            self.adopt(view, route);
        }
    }

    fn adopt(&self, view: View, route: &Weak<Route>) {
        let mut owners = vec![None; SLOTS.into()];
        for (first, last, address) in view {
            let Ok(node) = self.at(&address, route) else { continue };
            owners[usize::from(first)..=usize::from(last)].fill(Some(node));
        }
        let mut map = self.map.write();
        let stays = |node: &Arc<Node>| owners.iter().flatten().any(|owner| Arc::ptr_eq(owner, node));
        let gone: Vec<_> = map.nodes.extract_if(|_, node| !stays(node)).collect();
        map.retired = gone.iter().fold(map.retired, |sum, (_, node)| sum.plus(node.stats().past()));
        map.owners = owners;
    }
}

async fn view_of(connector: &Connector) -> Option<Value> {
    let asked = async {
        let mut connection = connector.seed().ok()?.get_multiplexed_async_connection().await.ok()?;
        slots_command().query_async(&mut connection).await.ok()
    };
    timeout(SEED_VIEW_MAX, asked).await.ok().flatten()
}

pub(crate) fn slots_command() -> redis::Cmd {
    let mut cmd = redis::cmd("CLUSTER");
    cmd.arg("SLOTS");
    cmd
}

/// Parses `CLUSTER SLOTS`: per range its first and last slot, then the primary's host and port, then replicas. A
/// missing host is that of the node that sent the view.
fn parse(view: &Value, asked: &str) -> Option<View> {
    let Value::Array(ranges) = view else { return None };
    let own_host = asked.rsplit_once(':')?.0;
    let range = |range: &Value| {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &parts[..] else {
            return None;
        };
        let [host, Value::Int(port), ..] = &primary[..] else { return None };
        let host = match host {
            Value::BulkString(host) if !host.is_empty() && host != b"?" => {
                String::from_utf8(host.clone()).ok()?
            }
            _ => own_host.to_owned(),
        };
        let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        (first <= last && last < SLOTS).then(|| (first, last, format!("{host}:{port}")))
    };
    let view: View = ranges.iter().map(range).collect::<Option<_>>()?;
    (!view.is_empty()).then_some(view)
}
