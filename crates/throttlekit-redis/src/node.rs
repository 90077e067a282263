//! One server: its connections and circuit breaker.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Client, Value};
use throttlekit::store::{Background, StoreClient, StoreClientOptions, StoreClientStats, StoreError};
use tokio::time::timeout;

use crate::cluster::slots_command;
use crate::connection::{CONNECT_MAX, SharedConnection};
use crate::error::Trouble;
use crate::exposure::FailoverRecords;
use crate::failover::Failover;
use crate::lineage::{Since, Told, Tracking};
use crate::replication::Replication;
use crate::request::{Errand, Reply, Request};
use crate::route::Route;
use crate::server_check::{Demands, Warning};
use crate::unreplicated::UnreplicatedCharges;

/// Timeout for sampling the replication offsets of a node.
const SAMPLE_MAX: Duration = Duration::from_secs(1);
/// Number of connections for charges that wait for replicas: one waits on each at a time.
const WAITING: usize = 4;
/// Timeout for a node's view of the cluster.
const VIEW_MAX: Duration = Duration::from_millis(100);

/// Settings shared by all nodes of a store.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) line: StoreClientOptions,
    /// The runtime on which connections are opened and driven.
    pub(crate) background: Background,
    pub(crate) failover: Failover,
    pub(crate) demands: Demands,
    /// The record of exposure, if it is sampled.
    pub(crate) books: Option<Arc<FailoverRecords>>,
}

pub(crate) struct Node {
    pub(crate) address: String,
    link: Arc<SharedConnection>,
    /// For charges that wait for replicas: whatever is behind them on a connection waits too.
    waiting: Arc<[Arc<SharedConnection>]>,
    next_waiting: AtomicUsize,
    line: StoreClient,
    failover: Failover,
    ledger: Option<Arc<UnreplicatedCharges>>,
}

impl Node {
    /// Creates a node that is not connected yet. While it does not respond, its probe also refreshes the topology.
    pub(crate) fn new(address: String, client: &Client, setup: &Setup, route: Weak<Route>) -> Arc<Self> {
        let ledger = setup.books.as_ref().map(UnreplicatedCharges::open);
        let deadline = setup.line.deadline;
        let new_link =
            || Arc::new(SharedConnection::new(client.clone(), setup.demands, ledger.clone(), deadline));
        let waits = matches!(setup.failover, Failover::Wait { .. });
        let waiting: Arc<[_]> = (0..if waits { WAITING } else { 0 }).map(|_| new_link()).collect();
        let link = new_link();
        let (probed, others, at) = (link.clone(), waiting.clone(), address.clone());
        let probe = move || -> Pin<Box<dyn Future<Output = _> + Send>> {
            let (link, others, route, at) = (probed.clone(), others.clone(), route.clone(), at.clone());
            Box::pin(async move {
                if let Some(route) = route.upgrade() {
                    route.look_through().await;
                    if !route.uses(&at) {
                        return Ok(());
                    }
                }
                others.iter().for_each(|link| link.hang_up());
                link.revive().await
            })
        };
        let line = StoreClient::on(setup.background.clone(), setup.line, Box::new(probe));
        let failover = setup.failover;
        Arc::new(Self { address, link, waiting, next_waiting: AtomicUsize::new(0), line, failover, ledger })
    }

    /// Sends one command with its related commands.
    pub(crate) async fn send(&self, request: Request) -> Result<Reply, Trouble> {
        let (Errand::Charge(units) | Errand::Admit(units, _)) = request.errand else {
            return Ok(Reply::of(self.send_by(&self.link, request, None).await?));
        };
        let flight = self.ledger.as_ref().map(|ledger| ledger.ask(units));
        match self.charge(request).await {
            Ok((told, held_back)) => Ok(Reply { held_back, flight, ..Reply::of(self.vouched(told)) }),
            Err(trouble) => {
                if let Some(flight) = flight.filter(|_| trouble.is_not_run()) {
                    flight.land(0);
                }
                Err(trouble)
            }
        }
    }

    /// Sends a request that charges. Also returns the reason why the response must not be spent, if any.
    async fn charge(&self, request: Request) -> Result<(Told, Option<StoreError>), Trouble> {
        let Failover::Wait { replicas, within } = self.failover else {
            return Ok((self.send_by(&self.link, request, None).await?, None));
        };
        let link = &self.waiting[self.next_waiting.fetch_add(1, Relaxed) % self.waiting.len()];
        let told = self.send_by(link, request, Some((replicas, within))).await?;
        match told.value {
            Value::Array(mut both) if both.len() == 2 => {
                let heard = both.pop().and_then(|heard| redis::from_redis_value::<u32>(heard).ok());
                let held_back = held_back(heard.unwrap_or(0), replicas, within);
                Ok((Told { value: both.pop().unwrap_or(Value::Nil), ..told }, held_back))
            }
            _ => Err(Trouble::Other(StoreError::misconfigured(
                "unexpected reply to WAIT; connect without a proxy",
            ))),
        }
    }

    async fn send_by(
        &self,
        link: &Arc<SharedConnection>,
        request: Request,
        wait: Option<(u32, Duration)>,
    ) -> Result<Told, Trouble> {
        let (link, track, answers) = (link.clone(), self.tracks(&request), self.line.answers());
        let work = async move { link.send(request, track, wait, &answers).await };
        let answer = self.line.call_judged(work, failure);
        answer.await.unwrap_or_else(|error| {
            let unsent =
                if matches!(error, StoreError::Deadline(_)) { Trouble::Other } else { Trouble::Refused };
            Err(unsent(error))
        })
    }

    /// Marks a response as complete if a fence checked it: it rests on nothing that may be lost.
    fn vouched(&self, told: Told) -> Told {
        match self.failover {
            Failover::Fence { .. } => Told { since: Since::Ever, ..told },
            Failover::Async { .. } | Failover::Wait { .. } => told,
        }
    }

    /// Returns how a script determines the server's lineage, if it follows it.
    fn tracks(&self, request: &Request) -> Option<Tracking> {
        let in_script = |mode| Some(Tracking { mode, defers: false });
        match (request.errand, self.failover) {
            (Errand::Plain, _) => None,
            _ if request.asking => in_script("?a"),
            (_, Failover::Fence { .. }) => in_script("?f"),
            (_, Failover::Wait { .. }) => in_script("?w"),
            (Errand::Admit(..), Failover::Async { .. }) => Some(Tracking { mode: "?", defers: true }),
            (_, Failover::Async { .. }) => in_script("?"),
        }
    }

    /// Connects if necessary, and checks whether the node's configuration is usable.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let connected = timeout(CONNECT_MAX, self.link.connection()).await;
        connected.map_err(|_| StoreError::Deadline(CONNECT_MAX))?.map_err(Trouble::into_store_error)?;
        Ok(())
    }

    /// Returns the warnings of the last check.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        self.link.warnings()
    }

    /// Samples the replication offsets, if exposure is recorded.
    pub(crate) async fn sample(&self) {
        let Some(ledger) = self.ledger.as_ref().filter(|_| !self.is_away()) else { return };
        let asked = async {
            let mut connection = self.link.connection().await.ok()?.connection;
            let charged = ledger.charged();
            let said: String = redis::cmd("INFO")
                .arg("server")
                .arg("replication")
                .query_async(&mut connection)
                .await
                .ok()?;
            ledger.sample(charged, &Replication::parse(&said)?);
            Some(())
        };
        let _ = timeout(SAMPLE_MAX, asked).await;
    }

    /// Returns its view of the cluster, if it responds in time.
    pub(crate) async fn view(&self) -> Option<Value> {
        let asked = async {
            let mut connection = self.link.connection().await.ok()?.connection;
            slots_command().query_async(&mut connection).await.ok()
        };
        timeout(VIEW_MAX, asked).await.ok().flatten()
    }

    /// Returns whether its circuit breaker is open.
    pub(crate) fn is_away(&self) -> bool {
        self.line.stats().open
    }

    /// Returns whether it has not responded lately.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_away() || !self.link.is_connected()
    }

    /// Starts with the circuit breaker open.
    pub(crate) fn give_up(&self) {
        self.line.open();
    }

    pub(crate) fn stats(&self) -> StoreClientStats {
        self.line.stats()
    }
}

/// Returns the failure of the node that a response shows, if any.
fn failure(answer: &Result<Told, Trouble>) -> Option<StoreError> {
    let trouble = answer.as_ref().err().filter(|trouble| !trouble.is_answer())?;
    Some(trouble.clone().into_store_error())
}

/// Returns the reason why a charge that `heard` replicas acknowledged must not be spent.
fn held_back(heard: u32, replicas: u32, within: Duration) -> Option<StoreError> {
    (heard < replicas).then(|| {
        StoreError::unavailable(format_args!(
            "{heard} of {replicas} replicas acknowledged the charge within {within:?}; it stays charged and \
             must not be spent: check the replicas, or wait for fewer"
        ))
    })
}
