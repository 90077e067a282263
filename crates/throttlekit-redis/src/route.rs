//! Selection of the node for a call, and redirection.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Cmd, Value};
use throttlekit::store::{Background, StoreClientStats, StoreError, TaskSlot};
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::error::Trouble;
use crate::lineage::record_at;
use crate::node::Node;
use crate::request::{Errand, Reply, Request};
use crate::sentinel::Sentinels;
use crate::server_check::Warning;
use crate::wire::{By, Preamble};

/// Minimum pause between two topology refreshes by failing callers, however many there are.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Pause before a call is retried whose keys are migrating to another node. Keys migrate by tens in one command, so
/// most have arrived by then.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// The topology of the primaries.
pub(crate) struct Route {
    me: Weak<Route>,
    topology: Topology,
    looks: tokio::sync::Mutex<()>,
    background: Background,
    /// The refresh that a caller has requested, which is in progress or has just ended.
    looking: Arc<TaskSlot>,
    counters: RouteCounters,
}

pub(crate) enum Topology {
    Single(Arc<Node>),
    Sentinel(Box<Sentinels>),
    Cluster(Box<Cluster>),
}

#[derive(Default)]
struct RouteCounters {
    redirected: AtomicU64,
    no_script: AtomicU64,
    demoted: AtomicU64,
    looked: AtomicU64,
    tried_again: AtomicU64,
}

/// Routing statistics since the store was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteStats {
    /// Calls that a node redirected to another.
    pub redirected: u64,
    /// Calls whose script had to be sent in full.
    pub no_script: u64,
    /// Calls rejected by a node that had become a replica.
    pub demoted: u64,
    /// Number of topology refreshes.
    pub looked: u64,
    /// Calls retried because some of their keys were migrating to another node.
    pub tried_again: u64,
}

impl Route {
    pub(crate) fn new(background: Background, topology: impl FnOnce(&Weak<Self>) -> Topology) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            topology: topology(me),
            looks: tokio::sync::Mutex::new(()),
            background,
            looking: Arc::default(),
            counters: RouteCounters::default(),
        })
    }

    /// Returns whether keys of different slots must go in separate calls.
    pub(crate) fn splits_by_slot(&self) -> bool {
        matches!(self.topology, Topology::Cluster(_))
    }

    /// Calls a script on the node that has `slot`. It is sent again only if a node reported that it did not run: once
    /// in full, once to another node, and all of that once more while keys are migrating.
    pub(crate) async fn call(&self, slot: u16, cmd: impl Fn(By) -> Cmd) -> Result<Value, StoreError> {
        Ok(self.carry(slot, Errand::Plain, cmd).await?.value)
    }

    /// The same for a script that follows the lineage and grants nothing.
    pub(crate) async fn track(&self, slot: u16, cmd: impl Fn(By) -> Cmd) -> Result<Value, StoreError> {
        Ok(self.carry(slot, Errand::Tracked, cmd).await?.value)
    }

    /// The same for a script that may charge this many units: the failover mode is applied.
    pub(crate) async fn charge(
        &self,
        slot: u16,
        units: u64,
        cmd: impl Fn(By) -> Cmd,
    ) -> Result<Reply, StoreError> {
        self.carry(slot, Errand::Charge(units), cmd).await
    }

    /// The same for the script that decides.
    pub(crate) async fn admit(
        &self,
        slot: u16,
        units: u64,
        head: Preamble,
        cmd: impl Fn(By) -> Cmd,
    ) -> Result<Reply, StoreError> {
        self.carry(slot, Errand::Admit(units, head), cmd).await
    }

    async fn carry(&self, slot: u16, errand: Errand, cmd: impl Fn(By) -> Cmd) -> Result<Reply, StoreError> {
        let record = record_at(slot, self.splits_by_slot());
        let plain = |by| Request { cmd: cmd(by), slot, record, asking: false, errand };
        let mut answer = self.call_owner(slot, &plain).await;
        if matches!(answer, Err(Trouble::TryAgain)) {
            self.counters.tried_again.fetch_add(1, Relaxed);
            sleep(TRY_AGAIN_AFTER).await;
            answer = self.call_owner(slot, &plain).await;
        }
        self.finish(answer)
    }

    /// Calls the node that has the slot, and the one that it redirects to.
    async fn call_owner(&self, slot: u16, plain: &impl Fn(By) -> Request) -> Result<Reply, Trouble> {
        let asking = |by| Request { asking: true, ..plain(by) };
        let node = self.node(slot).map_err(Trouble::Refused)?;
        match self.call_node(&node, plain).await {
            Err(Trouble::Moved(to)) => {
                self.counters.redirected.fetch_add(1, Relaxed);
                self.look_soon();
                let node = self.moved(slot, &beside(&to, &node.address)).map_err(Trouble::Refused)?;
                self.call_node(&node, plain).await
            }
            Err(Trouble::Ask(to)) => {
                self.counters.redirected.fetch_add(1, Relaxed);
                let node = self.at(&beside(&to, &node.address)).map_err(Trouble::Refused)?;
                self.call_node(&node, asking).await
            }
            answer => answer,
        }
    }

    async fn call_node(&self, node: &Node, request: impl Fn(By) -> Request) -> Result<Reply, Trouble> {
        match node.send(request(By::Sha)).await {
            Err(Trouble::NoScript) => {
                self.counters.no_script.fetch_add(1, Relaxed);
                node.send(request(By::Text)).await
            }
            answer => answer,
        }
    }

    fn finish(&self, answer: Result<Reply, Trouble>) -> Result<Reply, StoreError> {
        answer.map_err(|trouble| {
            match &trouble {
                Trouble::Demoted => {
                    self.counters.demoted.fetch_add(1, Relaxed);
                    self.look_soon();
                }
                Trouble::Lost(_) | Trouble::Moved(_) | Trouble::Ask(_) => self.look_soon(),
                Trouble::Other(error) if error.is_outage() => self.look_soon(),
                // While a node's circuit breaker is open, its own probe refreshes the topology.
                Trouble::Refused(_) | Trouble::NoScript | Trouble::TryAgain | Trouble::Other(_) => {}
            }
            trouble.into_store_error()
        })
    }

    fn node(&self, slot: u16) -> Result<Arc<Node>, StoreError> {
        match &self.topology {
            Topology::Single(node) => Ok(node.clone()),
            Topology::Sentinel(sentinels) => sentinels.primary().inspect_err(|_| self.look_soon()),
            Topology::Cluster(cluster) => cluster.node(slot).ok_or_else(|| {
                self.look_soon();
                StoreError::unavailable(format_args!("no known node serves slot {slot}"))
            }),
        }
    }

    fn moved(&self, slot: u16, to: &str) -> Result<Arc<Node>, StoreError> {
        match &self.topology {
            Topology::Cluster(cluster) => cluster.moved(slot, to, &self.me),
            _ => {
                Err(StoreError::misconfigured("the server is part of a cluster: connect to it as a cluster"))
            }
        }
    }

    fn at(&self, address: &str) -> Result<Arc<Node>, StoreError> {
        match &self.topology {
            Topology::Cluster(cluster) => cluster.at(address, &self.me),
            _ => {
                Err(StoreError::misconfigured("the server is part of a cluster: connect to it as a cluster"))
            }
        }
    }

    /// Refreshes the topology in the background: once for all concurrently failing callers.
    fn look_soon(&self) {
        if matches!(self.topology, Topology::Single(_)) {
            return;
        }
        let me = self.me.clone();
        self.looking.ensure(&self.background, || async move {
            if let Some(me) = me.upgrade() {
                me.look_again().await;
            }
            sleep(LOOK_PAUSE).await;
        });
    }

    /// Refreshes the topology, to the end even if the caller gives up.
    pub(crate) async fn look_through(&self) {
        if matches!(self.topology, Topology::Single(_)) {
            return;
        }
        if let Some(me) = self.me.upgrade() {
            let _ = self.background.spawn(async move { me.look_again().await }).await;
        }
    }

    /// Refreshes the topology. Callers that come during a refresh wait for that one.
    pub(crate) async fn look_again(&self) {
        let Ok(_look) = self.looks.try_lock() else {
            drop(self.looks.lock().await);
            return;
        };
        self.counters.looked.fetch_add(1, Relaxed);
        match &self.topology {
            Topology::Single(_) => {}
            Topology::Sentinel(sentinels) => sentinels.look(&self.me).await,
            Topology::Cluster(cluster) => cluster.look(&self.me).await,
        }
    }

    /// Returns whether the node at this address is still in use.
    pub(crate) fn uses(&self, address: &str) -> bool {
        match &self.topology {
            Topology::Single(_) => true,
            Topology::Sentinel(sentinels) => sentinels.primary().is_ok_and(|node| node.address == address),
            Topology::Cluster(cluster) => cluster.uses(address),
        }
    }

    /// Returns the runtime of the connections. Its deadline is that of a whole call, redirections included.
    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    /// Returns the nodes in use.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        match &self.topology {
            Topology::Single(node) => vec![node.clone()],
            Topology::Sentinel(sentinels) => sentinels.primary().into_iter().collect(),
            Topology::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// Returns the warnings about them.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        self.nodes().iter().flat_map(|node| node.warnings()).collect()
    }

    pub(crate) fn stats(&self) -> (StoreClientStats, RouteStats) {
        let lines = match &self.topology {
            Topology::Single(node) => node.stats(),
            Topology::Sentinel(sentinels) => sentinels.stats(),
            Topology::Cluster(cluster) => cluster.stats(),
        };
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let RouteCounters { redirected, no_script, demoted, looked, tried_again } = &self.counters;
        let route = RouteStats {
            redirected: read(redirected),
            no_script: read(no_script),
            demoted: read(demoted),
            looked: read(looked),
            tried_again: read(tried_again),
        };
        (lines, route)
    }
}

/// Completes an address from a redirection: a missing host is that of the redirecting node.
fn beside(to: &str, node: &str) -> String {
    match (to.strip_prefix(':'), node.rsplit_once(':')) {
        (Some(port), Some((host, _))) => format!("{host}:{port}"),
        _ => to.to_owned(),
    }
}
