//! One connection to a server, shared by all callers: opened on demand, checked, dropped when lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Value};
use throttlekit::internals::Mutex;
use throttlekit::store::StoreError;
use tokio::time::Instant;

use crate::deferring::{InFlight, RoundTrip};
use crate::error::Trouble;
use crate::lineage::{Question, Records, Since, Told, Tracking};
use crate::request::{Errand, Request};
use crate::script::eviction_check;
use crate::server_check::{Demands, Warning, check};
use crate::unreplicated::UnreplicatedCharges;
use crate::wire::{By, Preamble};

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
    /// The deadline of a call.
    deadline: Duration,
    current: Mutex<Current>,
    dialing: tokio::sync::Mutex<()>,
    in_flight: AtomicUsize,
}

#[derive(Default)]
struct Current {
    /// Number of connections opened so far.
    number: u64,
    connection: Option<MultiplexedConnection>,
    /// The lineage records seen on this connection.
    records: Arc<Records>,
    round_trip: Arc<RoundTrip>,
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
    round_trip: Arc<RoundTrip>,
}

impl SharedConnection {
    pub(crate) fn new(
        client: Client,
        demands: Demands,
        ledger: Option<Arc<UnreplicatedCharges>>,
        deadline: Duration,
    ) -> Self {
        let (current, dialing) = (Mutex::default(), tokio::sync::Mutex::new(()));
        Self { client, demands, ledger, deadline, current, dialing, in_flight: AtomicUsize::new(0) }
    }

    /// Sends a request and returns the response; if it waits for replicas, also the number of replicas that
    /// acknowledged. A script that follows the lineage receives the record this connection has cached, or the mode of
    /// finding out. `answers` counts a response that is returned only after a check for evictions.
    pub(crate) async fn send(
        self: &Arc<Self>,
        mut request: Request,
        track: Option<Tracking>,
        wait: Option<(u32, Duration)>,
        answers: &AtomicU64,
    ) -> Result<Told, Trouble> {
        let in_flight = InFlight::enter(&self.in_flight);
        let mut live = self.connection().await?;
        let may_defer = in_flight.is_one_of_many() && live.round_trip.may_be_repeated(self.deadline);
        let track = track.map(|track| Tracking { defers: track.defers && may_defer, ..track });
        let question = track.map(|track| live.records.question(request.slot, track));
        if let Some(question) = &question {
            request.cmd.arg(question.arg(request.record));
        }
        let begun = Instant::now();
        let answer = match request.pipeline(wait) {
            None => live.connection.send_packed_command(&request.cmd).await,
            Some((pipeline, skip, count)) => {
                let all = live.connection.send_packed_commands(&pipeline, skip, count).await;
                all.map(
                    |mut all| if count == 1 { all.pop().unwrap_or(Value::Nil) } else { Value::Array(all) },
                )
            }
        };
        if answer.is_ok() {
            live.round_trip.took(begun.elapsed());
        }
        let value = answer.and_then(Value::extract_error).map_err(|error| {
            let trouble = Trouble::of(&error);
            if matches!(trouble, Trouble::Lost(_) | Trouble::Demoted) {
                self.forget(live.number);
            }
            trouble
        })?;
        let Some(question) = question else { return Ok(Told::of(value, Since::Ever)) };
        let told = read(&live.records, &question, value, wait.is_some());
        self.note_loss(&told);
        let (true, Errand::Admit(_, head)) = (told.unchecked, request.errand) else { return Ok(told) };
        let Some((question, checks)) = question.check() else { return Ok(told) };
        answers.fetch_add(1, Relaxed);
        let check = self.check_evictions(live, question, request.record, head);
        // The decision was made, so its call must not count as one that was not run.
        let since = checks.join(Box::pin(check)).await.map_err(Trouble::Other)?;
        Ok(Told { since, ..told })
    }

    /// Checks for evictions until now, and returns the time since which the state behind all responses on this
    /// connection so far is complete. If the server rejects the check, the mark stays in the record: nobody trusts what
    /// was written, and the decisions end as calls without a response.
    async fn check_evictions(
        self: &Arc<Self>,
        mut live: Live,
        question: Question,
        record: &'static str,
        head: Preamble,
    ) -> Result<Since, StoreError> {
        let mut send = async |by| {
            let mut cmd = eviction_check(by, record, head);
            cmd.arg(question.arg(record));
            let answer = live.connection.send_packed_command(&cmd).await;
            answer.and_then(Value::extract_error).map_err(|error| Trouble::of(&error))
        };
        let answer = match send(By::Sha).await {
            Err(Trouble::NoScript) => send(By::Text).await,
            answer => answer,
        };
        match answer {
            Ok(value) => {
                let told = live.records.read(&question, value);
                self.note_loss(&told);
                Ok(told.since)
            }
            // The slot is moving: its next node does not know what happened on this one.
            Err(Trouble::Moved(_) | Trouble::Ask(_) | Trouble::TryAgain) => Ok(Since::Unknown),
            Err(trouble) => {
                if matches!(trouble, Trouble::Lost(_) | Trouble::Demoted) {
                    self.forget(live.number);
                }
                Err(trouble.into_store_error())
            }
        }
    }

    fn note_loss(&self, told: &Told) {
        if let Some(ledger) = self.ledger.as_ref().filter(|_| told.changed) {
            ledger.forget();
        }
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
            _ => Ok(current.connection.clone().map(|connection| current.live(connection))),
        }
    }

    fn keep(&self, connection: MultiplexedConnection, warnings: Vec<Warning>) -> Live {
        let mut current = self.current.lock();
        current.number += 1;
        current.connection = Some(connection.clone());
        (current.records, current.round_trip) = (Arc::default(), Arc::default());
        current.warnings = warnings;
        current.unusable = None;
        current.live(connection)
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
    fn live(&self, connection: MultiplexedConnection) -> Live {
        let (records, round_trip) = (self.records.clone(), self.round_trip.clone());
        Live { number: self.number, connection, records, round_trip }
    }
}

/// Extracts the lineage record from a response, or from the first of two if the second counts replicas.
fn read(records: &Records, question: &Question, value: Value, waited: bool) -> Told {
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
