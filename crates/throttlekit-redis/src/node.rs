//! One server: its connection, shared by all callers, and the line to it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, Value};
use throttlekit::store::{Line, LineOptions, LineStats, StoreError};

use tokio::time::timeout;

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

pub(crate) struct Node {
    pub(crate) address: String,
    link: Arc<Link>,
    line: Line,
}

struct Link {
    client: Client,
    /// The connection in use, and how many there were before it.
    current: Mutex<(u64, Option<MultiplexedConnection>)>,
    dialing: tokio::sync::Mutex<()>,
    /// What makes the node unusable, if it does; found out when it first answers.
    checked: OnceLock<Result<Vec<Warning>, StoreError>>,
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
                    route.look_again().await;
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
            self.link.send(request).await.map_err(|found| match found {
                Trouble::Lost(ref error) | Trouble::Other(ref error) => {
                    let error = error.clone();
                    trouble = Some(found);
                    error
                }
                // The node answered: that is no outage of it, whatever becomes of the call.
                answered => {
                    trouble = Some(answered);
                    StoreError::misconfigured("redirected")
                }
            })
        });
        let answer = answer.await;
        answer.map_err(|error| trouble.unwrap_or(Trouble::Other(error)))
    }

    /// Whether it can be used as it is set up.
    pub(crate) async fn check(&self) -> Result<Vec<Warning>, StoreError> {
        let checked = timeout(CONNECT_MAX, async {
            let (_, mut connection) = self.link.connection().await.map_err(Trouble::into_store_error)?;
            self.link.check(&mut connection).await
        });
        checked.await.unwrap_or(Err(StoreError::Deadline(CONNECT_MAX)))
    }

    /// Its view of the cluster, if it tells it soon.
    pub(crate) async fn view(&self) -> Option<Value> {
        let asked = async {
            let (_, mut connection) = self.link.connection().await.ok()?;
            slots_command().query_async(&mut connection).await.ok()
        };
        timeout(VIEW_MAX, asked).await.ok().flatten()
    }

    /// Whether it has not answered lately.
    pub(crate) fn is_silent(&self) -> bool {
        self.line.stats().open || self.link.current().is_none()
    }

    /// Starts as one that does not answer.
    pub(crate) fn give_up(&self) {
        self.line.open();
    }

    pub(crate) fn stats(&self) -> LineStats {
        self.line.stats()
    }

    pub(crate) fn forget_connection(&self) {
        self.link.forget(u64::MAX);
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
        Self {
            client,
            current: Mutex::default(),
            dialing: tokio::sync::Mutex::new(()),
            checked: OnceLock::new(),
        }
    }

    /// Whether the node can be used, found out once.
    async fn check(&self, connection: &mut MultiplexedConnection) -> Result<Vec<Warning>, StoreError> {
        if let Some(checked) = self.checked.get() {
            return checked.clone();
        }
        let checked = check(&address_of(&self.client), connection).await;
        if !checked.as_ref().is_err_and(StoreError::is_outage) {
            let _ = self.checked.set(checked.clone());
        }
        checked
    }

    async fn send(&self, request: &Request) -> Result<Value, Trouble> {
        if let Some(Err(unusable)) = self.checked.get() {
            return Err(Trouble::Other(unusable.clone()));
        }
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
    async fn connection(&self) -> Result<(u64, MultiplexedConnection), Trouble> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let _dialing = self.dialing.lock().await;
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let connection = self.dial().await.map_err(|error| match Trouble::of(&error) {
            Trouble::Lost(error) | Trouble::Other(error) => Trouble::Lost(error),
            other => other,
        })?;
        Ok(self.keep(connection))
    }

    async fn dial(&self) -> Result<MultiplexedConnection, redis::RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(UNWRITTEN_MAX);
        self.client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Connects anew, checks what was not checked yet, and sees whether the server is there and takes writes. The old connection may be half open, so
    /// it is not asked.
    async fn revive(&self) -> Result<(), StoreError> {
        let mut connection = self.dial().await.map_err(StoreError::unavailable)?;
        let role: Result<Vec<Value>, _> = redis::cmd("ROLE").query_async(&mut connection).await;
        match role.as_deref() {
            Ok([Value::BulkString(role), ..]) if role != b"master" => {
                return Err(StoreError::unavailable("it is a replica"));
            }
            Err(error) if error.is_io_error() => return Err(StoreError::unavailable(error)),
            // Old proxies and tight ACLs have no ROLE; then an answer of any kind must do.
            _ => {}
        }
        if let Err(error) = self.check(&mut connection).await
            && error.is_outage()
        {
            return Err(error);
        }
        self.keep(connection);
        Ok(())
    }

    fn current(&self) -> Option<(u64, MultiplexedConnection)> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.1.clone().map(|connection| (current.0, connection))
    }

    fn keep(&self, connection: MultiplexedConnection) -> (u64, MultiplexedConnection) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = (current.0 + 1, Some(connection.clone()));
        (current.0, connection)
    }

    /// Drops the connection with this number, unless it was replaced already.
    fn forget(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 == number || number == u64::MAX {
            current.1 = None;
        }
    }
}

fn address_of(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}
