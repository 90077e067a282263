//! One connection to a server, shared by all callers: opened on demand, checked, dropped when lost.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Value};
use throttlekit::internals::Mutex;
use throttlekit::store::StoreError;
use tokio::time::Instant;

use crate::error::Trouble;
use crate::lineage::{Question, Records, Since, Told};
use crate::request::Request;
use crate::server_check::{Demands, Warning, check};
use crate::unreplicated::UnreplicatedCharges;

/// Timeout for connecting, name lookup and TLS included.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(1);
/// Commands that wait to be written. Further callers wait for capacity, within their deadline.
const UNWRITTEN_MAX: usize = 1_024;
/// Time that a misconfigured node is treated as unusable. The first call after that checks it again.
const UNUSABLE_FOR: Duration = Duration::from_secs(1);

pub(crate) struct SharedConnection {
    client: Client,
    demands: Demands,
    ledger: Option<Arc<UnreplicatedCharges>>,
    current: Mutex<Current>,
    dialing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Current {
    /// Number of connections opened so far.
    number: u64,
    connection: Option<MultiplexedConnection>,
    /// The lineage records seen on this connection.
    records: Arc<Records>,
    /// Warnings of the last check.
    warnings: Vec<Warning>,
    /// Reason why the node is unusable, and the time until which that is assumed.
    unusable: Option<(StoreError, Instant)>,
}

/// A checked connection.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) number: u64,
    pub(crate) connection: MultiplexedConnection,
    records: Arc<Records>,
}

impl SharedConnection {
    pub(crate) fn new(client: Client, demands: Demands, ledger: Option<Arc<UnreplicatedCharges>>) -> Self {
        Self { client, demands, ledger, current: Mutex::default(), dialing: tokio::sync::Mutex::new(()) }
    }

    /// Sends a request and returns the response; if it waits for replicas, also the number of replicas that
    /// acknowledged. A script that follows the lineage receives the record this connection has cached, or by `track`
    /// the mode of finding out.
    pub(crate) async fn send(
        self: &Arc<Self>,
        mut request: Request,
        track: Option<&'static str>,
        wait: Option<(u32, Duration)>,
    ) -> Result<Told, Trouble> {
        let Live { number, mut connection, records } = self.connection().await?;
        let question = track.map(|mode| records.question(request.slot, mode));
        if let Some(question) = &question {
            request.cmd.arg(question.arg(request.record));
        }
        let answer = match request.pipeline(wait) {
            None => connection.send_packed_command(&request.cmd).await,
            Some((pipeline, skip, count)) => {
                let all = connection.send_packed_commands(&pipeline, skip, count).await;
                all.map(
                    |mut all| if count == 1 { all.pop().unwrap_or(Value::Nil) } else { Value::Array(all) },
                )
            }
        };
        let value = answer.and_then(Value::extract_error).map_err(|error| {
            let trouble = Trouble::of(&error);
            if matches!(trouble, Trouble::Lost(_) | Trouble::Demoted) {
                self.forget(number);
            }
            trouble
        })?;
        let told = match question {
            None => Told { value, since: Since::Ever, changed: false },
            Some(question) => read(&records, question, value, wait.is_some()),
        };
        if let Some(ledger) = self.ledger.as_ref().filter(|_| told.changed) {
            ledger.forget();
        }
        Ok(told)
    }

    /// Returns the connection, and opens it if there is none. Concurrent callers wait for the same one.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Live, Trouble> {
        if let Some(current) = self.current()? {
            return Ok(current);
        }
        let _dialing = self.dialing.lock().await;
        match self.current()? {
            Some(current) => Ok(current),
            None => self.connect().await,
        }
    }

    /// Connects and checks the server: it may be another one than before, or reconfigured.
    async fn connect(self: &Arc<Self>) -> Result<Live, Trouble> {
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

    /// Reconnects and checks whether the server accepts writes. The old connection may be half open, so it is not used.
    /// A misconfigured server counts as reachable: callers get its error.
    pub(crate) async fn revive(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut connection = match self.connect().await.map_err(Trouble::into_store_error) {
            Ok(live) => live.connection,
            Err(error) => return if error.is_outage() { Err(error) } else { Ok(()) },
        };
        let role: Result<Vec<Value>, _> = redis::cmd("ROLE").query_async(&mut connection).await;
        match role.as_deref() {
            Ok([Value::BulkString(role), ..]) if role != b"master" => {
                Err(StoreError::unavailable("the node is a replica"))
            }
            Err(error) if error.is_io_error() => Err(StoreError::unavailable(error)),
            // Old proxies and tight ACLs have no ROLE; then a response of any kind must do.
            _ => Ok(()),
        }
    }

    /// Returns the warnings of the last check.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        self.current.lock().warnings.clone()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.current.lock().connection.is_some()
    }

    /// Drops the connection, which may be half open.
    pub(crate) fn hang_up(&self) {
        self.current.lock().connection = None;
    }

    fn current(&self) -> Result<Option<Live>, Trouble> {
        let current = self.current.lock();
        match &current.unusable {
            Some((why, until)) if Instant::now() < *until => Err(Trouble::Other(why.clone())),
            _ => Ok(current.live()),
        }
    }

    fn keep(&self, connection: MultiplexedConnection, warnings: Vec<Warning>) -> Live {
        let mut current = self.current.lock();
        current.number += 1;
        current.connection = Some(connection.clone());
        current.records = Arc::default();
        current.warnings = warnings;
        current.unusable = None;
        Live { number: current.number, connection, records: current.records.clone() }
    }

    /// Reports the error to callers until a deadline by the clock alone: no task has to live for it to end.
    fn declare_unusable(&self, why: StoreError) {
        let mut current = self.current.lock();
        current.connection = None;
        current.unusable = Some((why, Instant::now() + UNUSABLE_FOR));
    }

    /// Drops the connection with this number, unless it was already replaced.
    fn forget(&self, number: u64) {
        let mut current = self.current.lock();
        if current.number == number {
            current.connection = None;
        }
    }
}

impl Current {
    fn live(&self) -> Option<Live> {
        let connection = self.connection.clone()?;
        Some(Live { number: self.number, connection, records: self.records.clone() })
    }
}

/// Extracts the lineage record from a response, or from the first of two if the second counts replicas.
fn read(records: &Records, question: Question, value: Value, waited: bool) -> Told {
    match value {
        Value::Array(mut both) if waited && both.len() == 2 => {
            let heard = both.pop();
            let told = records.read(question, both.pop().unwrap_or(Value::Nil));
            Told { value: Value::Array([Some(told.value), heard].into_iter().flatten().collect()), ..told }
        }
        value => records.read(question, value),
    }
}

fn address_of(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}
