//! One server: its connections, shared by all callers, and the line to it.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Value};
use throttlekit::store::{Line, LineOptions, LineStats, StoreError};
use tokio::time::{sleep, timeout};

use crate::check::{Demands, Warning, check};
use crate::cluster::slots_command;
use crate::error::Trouble;
use crate::exposure::Books;
use crate::failover::Failover;
use crate::ledger::Ledger;
use crate::replication::Replication;
use crate::request::{Errand, Reply, Request};
use crate::route::Route;

/// How long making a connection may take, name lookup and TLS included.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// How long a node may take to tell how far its replicas are.
const SAMPLE_MAX: Duration = Duration::from_secs(1);
/// How many connections carry charges that wait for replicas: one waits on each at a time.
const WAITING: usize = 4;
/// How long a node may take to tell its view of the cluster.
const VIEW_MAX: Duration = Duration::from_millis(100);
/// Commands that wait to be written. More callers than this wait for their turn, within their deadline.
const UNWRITTEN_MAX: usize = 1_024;
/// How long a node that is set up wrongly is taken to be so still. Then it is checked anew: someone may have mended it.
const UNUSABLE_FOR: Duration = Duration::from_secs(1);

/// What all nodes of a store have in common.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) line: LineOptions,
    pub(crate) failover: Failover,
    pub(crate) demands: Demands,
    /// Where exposure is kept, if it is sampled.
    pub(crate) books: Option<Arc<Books>>,
}

pub(crate) struct Node {
    pub(crate) address: String,
    link: Arc<Link>,
    /// For charges that wait for replicas: whatever is behind them on a connection waits too.
    waiting: Arc<[Arc<Link>]>,
    next_waiting: AtomicUsize,
    line: Line,
    failover: Failover,
    ledger: Option<Arc<Ledger>>,
}

struct Link {
    client: Client,
    demands: Demands,
    ledger: Option<Arc<Ledger>>,
    current: Mutex<Current>,
    dialing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Current {
    /// How many connections there were.
    number: u64,
    connection: Option<MultiplexedConnection>,
    /// What the last check found: what makes the node unusable, or what should be known about it.
    checked: Option<Result<Vec<Warning>, StoreError>>,
}

impl Node {
    /// A node that is not connected yet. While it does not answer, its probe lets the route look around too.
    pub(crate) fn new(address: String, client: Client, setup: &Setup, route: Weak<Route>) -> Arc<Self> {
        let ledger = setup.books.as_ref().map(Ledger::open);
        let new_link = || Arc::new(Link::new(client.clone(), setup.demands, ledger.clone()));
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
                others.iter().for_each(|link| link.lock().connection = None);
                link.revive().await
            })
        };
        let line = Line::new(setup.line, Box::new(probe));
        let failover = setup.failover;
        Arc::new(Self { address, link, waiting, next_waiting: AtomicUsize::new(0), line, failover, ledger })
    }

    /// Sends one command, with what belongs to it.
    pub(crate) async fn send(&self, request: &Request) -> Result<Reply, Trouble> {
        let Errand::Charge(units) = request.errand else {
            return Ok(Reply::of(self.send_by(&self.link, request, None).await?));
        };
        let flight = self.ledger.as_ref().map(|ledger| ledger.ask(units));
        match self.charge(request).await {
            Ok((value, held_back)) => Ok(Reply { value, held_back, flight }),
            Err(trouble) => {
                if let Some(flight) = flight.filter(|_| trouble.is_not_run()) {
                    flight.land(0);
                }
                Err(trouble)
            }
        }
    }

    /// Sends what charges. With the answer comes why it must not be spent, if so.
    async fn charge(&self, request: &Request) -> Result<(Value, Option<StoreError>), Trouble> {
        let Failover::Wait { replicas, within } = self.failover else {
            return Ok((self.send_by(&self.link, request, None).await?, None));
        };
        let link = &self.waiting[self.next_waiting.fetch_add(1, Relaxed) % self.waiting.len()];
        let both = self.send_by(link, request, Some((replicas, within))).await?;
        match both {
            Value::Array(mut both) if both.len() == 2 => {
                let heard = both.pop().and_then(|heard| redis::from_redis_value::<u32>(heard).ok());
                let held_back = held_back(heard.unwrap_or(0), replicas, within);
                Ok((both.pop().unwrap_or(Value::Nil), held_back))
            }
            _ => Err(Trouble::Other(StoreError::misconfigured("it answers WAIT with something else"))),
        }
    }

    async fn send_by(
        &self,
        link: &Arc<Link>,
        request: &Request,
        wait: Option<(u32, Duration)>,
    ) -> Result<Value, Trouble> {
        let mut trouble = None;
        let answer = self.line.call(async {
            match link.send(request, wait).await {
                Ok(value) => Ok(Ok(value)),
                Err(elsewhere) if elsewhere.is_answer() => Ok(Err(elsewhere)),
                Err(failure) => Err(trouble.insert(failure).clone().into_store_error()),
            }
        });
        let answer = answer.await;
        answer.unwrap_or_else(|error| {
            let unsent =
                if matches!(error, StoreError::Deadline(_)) { Trouble::Other } else { Trouble::Refused };
            Err(trouble.unwrap_or_else(|| unsent(error)))
        })
    }

    /// Connects, if it is not connected, and says whether the node can be used as it is set up.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let connected = timeout(CONNECT_MAX, self.link.connection()).await;
        connected.map_err(|_| StoreError::Deadline(CONNECT_MAX))?.map_err(Trouble::into_store_error)?;
        Ok(())
    }

    /// What the last check found that an operator should know.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        self.link.lock().checked.clone().and_then(Result::ok).unwrap_or_default()
    }

    /// Asks how far its replicas are, if anyone wants to know.
    pub(crate) async fn sample(&self) {
        let Some(ledger) = self.ledger.as_ref().filter(|_| !self.is_away()) else { return };
        let asked = async {
            let (_, mut connection) = self.link.connection().await.ok()?;
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

    /// Its view of the cluster, if it tells it soon.
    pub(crate) async fn view(&self) -> Option<Value> {
        let asked = async {
            let (_, mut connection) = self.link.connection().await.ok()?;
            slots_command().query_async(&mut connection).await.ok()
        };
        timeout(VIEW_MAX, asked).await.ok().flatten()
    }

    /// Whether its breaker is open.
    pub(crate) fn is_away(&self) -> bool {
        self.line.stats().open
    }

    /// Whether it has not answered lately.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_away() || self.link.lock().connection.is_none()
    }

    /// Starts as one that does not answer.
    pub(crate) fn give_up(&self) {
        self.line.open();
    }

    pub(crate) fn stats(&self) -> LineStats {
        self.line.stats()
    }
}

/// Why a charge that so many replicas have heard of must not be spent.
fn held_back(heard: u32, replicas: u32, within: Duration) -> Option<StoreError> {
    (heard < replicas).then(|| {
        StoreError::unavailable(format_args!(
            "{heard} of {replicas} replicas have the charge within {within:?}; it stands and is not spent: see to the \
             replicas, or wait for fewer"
        ))
    })
}

impl Link {
    fn new(client: Client, demands: Demands, ledger: Option<Arc<Ledger>>) -> Self {
        Self { client, demands, ledger, current: Mutex::default(), dialing: tokio::sync::Mutex::new(()) }
    }

    /// The answer; where it waits for replicas, that and how many have heard.
    async fn send(
        self: &Arc<Self>,
        request: &Request,
        wait: Option<(u32, Duration)>,
    ) -> Result<Value, Trouble> {
        let (number, mut connection) = self.connection().await?;
        let answer = match request.pipeline(wait) {
            None => connection.send_packed_command(&request.cmd).await,
            Some((pipeline, skip, count)) => {
                let all = connection.send_packed_commands(&pipeline, skip, count).await;
                all.map(
                    |mut all| if count == 1 { all.pop().unwrap_or(Value::Nil) } else { Value::Array(all) },
                )
            }
        };
        answer.and_then(Value::extract_error).map_err(|error| {
            let trouble = Trouble::of(&error);
            if matches!(trouble, Trouble::Lost(_) | Trouble::Demoted) {
                self.forget(number);
            }
            trouble
        })
    }

    /// The connection, made now if there is none. Callers that come meanwhile wait for the same one.
    async fn connection(self: &Arc<Self>) -> Result<(u64, MultiplexedConnection), Trouble> {
        if let Some(current) = self.current()? {
            return Ok(current);
        }
        let _dialing = self.dialing.lock().await;
        match self.current()? {
            Some(current) => Ok(current),
            None => self.connect().await,
        }
    }

    /// Connects, and checks the server: it may be another one than before, or set up anew.
    async fn connect(self: &Arc<Self>) -> Result<(u64, MultiplexedConnection), Trouble> {
        let mut connection = self.dial().await.map_err(|error| Trouble::of(&error).or_lost())?;
        let charged = self.ledger.as_ref().map_or(0, |ledger| ledger.charged());
        match check(&address_of(&self.client), &mut connection, self.demands).await {
            Ok(checked) => {
                if let (Some(ledger), Some(said)) = (&self.ledger, &checked.replication) {
                    ledger.sample(charged, said);
                }
                Ok(self.keep(connection, checked.warnings))
            }
            Err(error) => {
                if !error.is_outage() {
                    self.declare_unusable(error.clone());
                }
                Err(Trouble::Other(error))
            }
        }
    }

    async fn dial(&self) -> Result<MultiplexedConnection, redis::RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(UNWRITTEN_MAX);
        self.client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Connects anew and sees whether the server takes writes. The old connection may be half open, so it is not
    /// asked. A server that is set up wrongly is there: callers are to hear what is wrong.
    async fn revive(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut connection = match self.connect().await.map_err(Trouble::into_store_error) {
            Ok((_, connection)) => connection,
            Err(error) => return if error.is_outage() { Err(error) } else { Ok(()) },
        };
        let role: Result<Vec<Value>, _> = redis::cmd("ROLE").query_async(&mut connection).await;
        match role.as_deref() {
            Ok([Value::BulkString(role), ..]) if role != b"master" => {
                Err(StoreError::unavailable("it is a replica"))
            }
            Err(error) if error.is_io_error() => Err(StoreError::unavailable(error)),
            // Old proxies and tight ACLs have no ROLE; then an answer of any kind must do.
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Result<Option<(u64, MultiplexedConnection)>, Trouble> {
        let current = self.lock();
        match &current.checked {
            Some(Err(unusable)) => Err(Trouble::Other(unusable.clone())),
            _ => Ok(current.connection.clone().map(|connection| (current.number, connection))),
        }
    }

    fn keep(
        &self,
        connection: MultiplexedConnection,
        warnings: Vec<Warning>,
    ) -> (u64, MultiplexedConnection) {
        let mut current = self.lock();
        current.number += 1;
        current.connection = Some(connection.clone());
        current.checked = Some(Ok(warnings));
        (current.number, connection)
    }

    fn declare_unusable(self: &Arc<Self>, why: StoreError) {
        self.lock().checked = Some(Err(why));
        let me = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep(UNUSABLE_FOR).await;
            if let Some(link) = me.upgrade() {
                link.lock().checked.take_if(|checked| checked.is_err());
            }
        });
    }

    /// Drops the connection with this number, unless it was replaced already.
    fn forget(&self, number: u64) {
        let mut current = self.lock();
        if current.number == number {
            current.connection = None;
        }
    }
}

fn address_of(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}
