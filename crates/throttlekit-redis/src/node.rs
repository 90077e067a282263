//! One server: its connection, shared by all callers, and the line to it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, Value};
use throttlekit::store::{Line, LineOptions, LineStats, StoreError};
use tokio::time::{sleep, timeout};

use crate::check::{Warning, check};
use crate::cluster::slots_command;
use crate::error::Trouble;
use crate::route::Route;

/// How long making a connection may take, name lookup and TLS included.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// How long a node may take to tell its view of the cluster.
const VIEW_MAX: Duration = Duration::from_millis(100);
/// Commands that wait to be written. More callers than this wait for their turn, within their deadline.
const UNWRITTEN_MAX: usize = 1_024;
/// How long a node that is set up wrongly is taken to be so still. Then it is checked anew: someone may have mended it.
const UNUSABLE_FOR: Duration = Duration::from_secs(1);

pub(crate) struct Node {
    pub(crate) address: String,
    link: Arc<Link>,
    line: Line,
}

struct Link {
    client: Client,
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
    pub(crate) fn new(
        address: String,
        client: Client,
        options: LineOptions,
        route: Weak<Route>,
    ) -> Arc<Self> {
        let link = Arc::new(Link::new(client));
        let (probed, at) = (link.clone(), address.clone());
        let probe = move || -> Pin<Box<dyn Future<Output = _> + Send>> {
            let (link, route, at) = (probed.clone(), route.clone(), at.clone());
            Box::pin(async move {
                if let Some(route) = route.upgrade() {
                    route.look_through().await;
                    if !route.uses(&at) {
                        return Ok(());
                    }
                }
                link.revive().await
            })
        };
        Arc::new(Self { address, link, line: Line::new(options, Box::new(probe)) })
    }

    /// Sends one command, or several that belong together, and takes the last answer.
    pub(crate) async fn send(&self, request: &Request) -> Result<Value, Trouble> {
        let mut trouble = None;
        let answer = self.line.call(async {
            match self.link.send(request).await {
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

/// What is sent in one go.
pub(crate) enum Request {
    One(Cmd),
    /// After `ASKING`, which lets a node answer for a slot that it is being given.
    Asking(Pipeline),
}

impl Request {
    pub(crate) fn asking(cmd: Cmd) -> Self {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").ignore().add_command(cmd);
        Self::Asking(pipeline)
    }
}

impl Link {
    fn new(client: Client) -> Self {
        Self { client, current: Mutex::default(), dialing: tokio::sync::Mutex::new(()) }
    }

    async fn send(self: &Arc<Self>, request: &Request) -> Result<Value, Trouble> {
        let (number, mut connection) = self.connection().await?;
        let answer = match request {
            Request::One(cmd) => connection.send_packed_command(cmd).await,
            Request::Asking(pipeline) => connection
                .send_packed_commands(pipeline, 1, 1)
                .await
                .map(|mut all| all.pop().unwrap_or(Value::Nil)),
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
        match check(&address_of(&self.client), &mut connection).await {
            Ok(warnings) => Ok(self.keep(connection, warnings)),
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
