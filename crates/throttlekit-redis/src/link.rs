//! One connection to a server, shared by all callers: made when needed, checked, forgotten when it is lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Value};
use throttlekit::store::StoreError;
use tokio::time::sleep;

use crate::check::{Demands, Warning, check};
use crate::error::Trouble;
use crate::ledger::Ledger;
use crate::request::Request;

/// How long making a connection may take, name lookup and TLS included.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(1);
/// Commands that wait to be written. More callers than this wait for their turn, within their deadline.
const UNWRITTEN_MAX: usize = 1_024;
/// How long a node that is set up wrongly is taken to be so still. Then it is checked anew: someone may have mended it.
const UNUSABLE_FOR: Duration = Duration::from_secs(1);

pub(crate) struct Link {
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

impl Link {
    pub(crate) fn new(client: Client, demands: Demands, ledger: Option<Arc<Ledger>>) -> Self {
        Self { client, demands, ledger, current: Mutex::default(), dialing: tokio::sync::Mutex::new(()) }
    }

    /// The answer; where it waits for replicas, that and how many have heard.
    pub(crate) async fn send(
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
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<(u64, MultiplexedConnection), Trouble> {
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
    pub(crate) async fn revive(self: &Arc<Self>) -> Result<(), StoreError> {
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

    /// What the last check found that an operator should know.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        self.lock().checked.clone().and_then(Result::ok).unwrap_or_default()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.lock().connection.is_some()
    }

    /// Drops the connection, which may be half open.
    pub(crate) fn hang_up(&self) {
        self.lock().connection = None;
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
