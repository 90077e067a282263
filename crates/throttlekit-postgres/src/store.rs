//! The store.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use throttlekit::Guarantee;
use throttlekit::clock::{Clock, WallClock};
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use throttlekit::store::{Background, Outcome, Settlement, Snapshot, Store, StoreError};
use throttlekit::store::{
    Charge, Charges, Countable, Debit, Debited, LeaseRequest, LeaseReturn, Leased, Lendable, LocalShares,
    StoreClient, StoreClientStats,
};
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::batch::{Batch, Corrections, cut_short, looked_at, outcomes, sight, sorted};
use crate::batcher::Batcher;
use crate::builder::{Durability, PostgresStoreBuilder, in_millis};
use crate::connections::Held;
use crate::error::{Failure, from_server};
use crate::lineage::Lineage;
use crate::owned_params::OwnedParams;
use crate::schema::{MIGRATION_MAX, Schema, SchemaReport, SchemaWarning};
use crate::store_connections::{Param, Statement, StoreConnections};

/// Timeout of the first connect to a server that neither responds nor refuses.
const SETUP_MAX: Duration = MIGRATION_MAX.saturating_add(Duration::from_secs(5));

const CHECK_MAX: Duration = Duration::from_secs(5);

/// A [`Store`] on PostgreSQL, decided by functions there.
///
/// Cheap to clone; clones share connections, circuit breaker and counters.
#[derive(Clone)]
pub struct PostgresStore {
    pub(crate) inner: Arc<Inner>,
    line: StoreClient,
    local_shares: LocalShares,
}

pub(crate) struct Inner {
    pub(crate) link: StoreConnections,
    pub(crate) schema: Schema,
    pub(crate) builder: PostgresStoreBuilder,
    pub(crate) batcher: Batcher,
    pub(crate) statements: Statements,
    /// Set once the server passed its check.
    ready: AtomicBool,
    /// Held during the check, so that one caller runs it.
    setup: tokio::sync::Mutex<()>,
    /// The circuit breaker's count of responses.
    answers: OnceLock<Arc<AtomicU64>>,
    report: Mutex<Option<SchemaReport>>,
    pub(crate) lineage: Lineage,
    /// Identifies this store among those that probe the server.
    pub(crate) handle: i64,
}

pub(crate) struct Statements {
    admit_one: Statement,
    admit: Statement,
    /// The same, with the wait for a row as an argument.
    admit_one_within: Statement,
    admit_within: Statement,
    peek: Statement,
    settle: Statement,
    pub(crate) lend: Statement,
    pub(crate) give_back: Statement,
    pub(crate) debit: Statement,
    pub(crate) grant_region: Statement,
    pub(crate) acquire_slot: Statement,
    pub(crate) heartbeat_slots: Statement,
    pub(crate) release_slots: Statement,
    pub(crate) slot_occupancy: Statement,
    pub(crate) swap_membership: Statement,
    forget: Statement,
    lineage_check: Statement,
    pub(crate) probe_write: Statement,
}

impl PostgresStore {
    /// Connects with the defaults; see [`PostgresStoreBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Creates a builder for a store at this address, such as `postgres://user:password@host:5432/database`.
    pub fn builder(url: impl Into<String>) -> PostgresStoreBuilder {
        PostgresStoreBuilder::new(url)
    }

    pub(crate) async fn connect_with(builder: PostgresStoreBuilder) -> Result<Self, StoreError> {
        let inner = Arc::new(Inner {
            link: builder.link()?,
            schema: Schema::of(&builder)?,
            statements: Statements::of(&builder)?,
            batcher: Batcher::new(builder.connections),
            ready: AtomicBool::new(false),
            setup: tokio::sync::Mutex::default(),
            answers: OnceLock::new(),
            report: Mutex::default(),
            lineage: Lineage::new(builder.seeded),
            handle: RandomState::new().hash_one(0) as i64,
            builder,
        });
        let line =
            StoreClient::on(inner.builder.background.clone(), inner.builder.line, inner.clone().into_probe());
        let _ = inner.answers.set(line.answers());
        match inner.ready().await {
            Ok(()) => {}
            Err(error) if error.is_outage() => line.open(),
            Err(error) => return Err(error),
        }
        Ok(Self { inner, line, local_shares: LocalShares::default() })
    }

    /// Checks again whether the server can be used, and what weakens the guarantee. Takes up to 5 s, whatever the
    /// deadline of calls, since it may check other hosts; the circuit breaker does not count it.
    pub async fn check(&self) -> Result<SchemaReport, StoreError> {
        let inner = self.inner.clone();
        let check = async move {
            timeout(CHECK_MAX, inner.check()).await.unwrap_or(Err(StoreError::Deadline(CHECK_MAX)))
        };
        self.inner.builder.background.run_attached(check).await?
    }

    /// Returns the report of the last check; `None` while the server has been unreachable since the start.
    pub fn report(&self) -> Option<SchemaReport> {
        self.inner.report.lock().clone()
    }

    /// Makes one call. A call that the server rolled back after a lock or statement timeout counts as a response: the
    /// server is reachable, so the circuit breaker does not count it.
    pub(crate) async fn call<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, StoreError> {
        let work = async {
            match work.await {
                Ok(answer) => Ok(Ok(answer)),
                Err(Failure { error, undone: true }) if error.is_outage() => Ok(Err(error)),
                Err(failure) => Err(failure.error),
            }
        };
        self.line.call_here(work).await?
    }

    /// Returns the call statistics. A call that the server itself ended, by a lock or statement timeout, counts as
    /// neither failed nor timed out.
    pub fn line_stats(&self) -> StoreClientStats {
        self.line.stats()
    }
}

impl Inner {
    /// Sends a batch, which waits for each row as long as given, or else as the session does.
    pub(crate) async fn send(
        &self,
        batch: &Batch<'_>,
        row_wait: Option<Duration>,
    ) -> Result<Vec<i64>, Failure> {
        let row_wait = row_wait.map(in_millis);
        let statements = &self.statements;
        let (now, int) = (self.now(), Type::INT8);
        match batch {
            Batch::One { key, kind, numbers: [a, b, c, d, e, f] } => {
                let mut params: Vec<Param<'_>> = vec![
                    (&now, int.clone()),
                    (key, Type::TEXT),
                    (kind, Type::INT4),
                    (a, int.clone()),
                    (b, int.clone()),
                    (c, int.clone()),
                    (d, int.clone()),
                    (e, int.clone()),
                    (f, int),
                ];
                let Some(wait) = &row_wait else {
                    return self.numbers_here(&statements.admit_one, &params).await;
                };
                params.push((wait, Type::TEXT));
                self.numbers_here(&statements.admit_one_within, &params).await
            }
            Batch::Many { keys, asks, slots, kinds, numbers } => {
                let mut params: Vec<Param<'_>> = vec![
                    (&now, int),
                    (keys, Type::TEXT_ARRAY),
                    (asks, Type::INT4_ARRAY),
                    (slots, Type::INT4_ARRAY),
                    (kinds, Type::INT4_ARRAY),
                    (numbers, Type::INT8_ARRAY),
                ];
                let Some(wait) = &row_wait else {
                    return self.numbers_here(&statements.admit, &params).await;
                };
                params.push((wait, Type::TEXT));
                self.numbers_here(&statements.admit_within, &params).await
            }
        }
    }

    /// Calls a function that returns numbers, in a background task: a caller that is dropped or not polled holds no
    /// connection.
    pub(crate) async fn numbers(
        self: &Arc<Self>,
        statement: &Statement,
        params: &[Param<'_>],
    ) -> Result<Vec<i64>, Failure> {
        self.ready().await?;
        let (inner, statement, params) = (self.clone(), statement.clone(), OwnedParams::of(params)?);
        self.in_background(async move { inner.numbers_here(&statement, &params.params()).await }).await
    }

    /// Calls the function. Its result is the last column, after settings.
    async fn numbers_here(&self, statement: &Statement, params: &[Param<'_>]) -> Result<Vec<i64>, Failure> {
        let row = self.row(statement, params).await?;
        row.try_get(row.len() - 1).map_err(|error| StoreError::misconfigured(error).into())
    }

    /// Calls a function that returns nothing.
    pub(crate) async fn run(
        self: &Arc<Self>,
        statement: &Statement,
        params: &[Param<'_>],
    ) -> Result<(), Failure> {
        self.ready().await?;
        let (inner, statement, params) = (self.clone(), statement.clone(), OwnedParams::of(params)?);
        self.in_background(async move { inner.row(&statement, &params.params()).await.map(drop) }).await
    }

    /// Runs a request in the background until its deadline, whatever happens to the caller: then it is abandoned, and
    /// canceled on the server. The server's response is counted even if the caller is gone.
    pub(crate) async fn in_background<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let (deadline, answers) = (self.link.deadline, self.answers.get().cloned());
        // Boxed: a request is kilobytes large in a debug build, and is moved through several calls from here on.
        let request = Box::pin(request);
        let request = async move {
            let answer = timeout(deadline, request).await;
            let answer = answer.unwrap_or_else(|_| Err(StoreError::Deadline(deadline).into()));
            let silent = |failure: &Failure| failure.error.is_outage() && !failure.undone;
            let is_answer = !answer.as_ref().is_err_and(silent);
            if let Some(answers) = answers.filter(|_| is_answer) {
                answers.fetch_add(1, Relaxed);
            }
            answer
        };
        self.builder.background.clone().with_deadline(deadline).run(1, request).await?
    }

    /// Calls a function over a connection whose history is known, and records the history in the response.
    pub(crate) async fn row(&self, statement: &Statement, params: &[Param<'_>]) -> Result<Row, Failure> {
        let held = self.hold().await?;
        let (generation, before) = (held.connection().generation(), self.lineage.before());
        let row = self.link.one_row(held, statement, params).await?;
        let wrong = |error: tokio_postgres::Error| Failure::from(StoreError::misconfigured(error));
        if !self.link.pooled {
            self.lineage.flushed(generation, row.try_get(0).map_err(wrong)?);
        } else if self.lineage.seen(before, &row.try_get::<_, Vec<i64>>(0).map_err(wrong)?)? {
            // Makes the change known to other calls. If this fails, the next response shows the same again.
            if let Ok(held) = self.link.calls.hold().await
                && let Ok(held) = self.learn_lineage(held).await
            {
                held.give_back();
            }
        }
        Ok(row)
    }

    /// Returns a connection for calls, of the known history. The history of a new one is read first.
    pub(crate) async fn hold(&self) -> Result<Held, StoreError> {
        loop {
            let held = self.link.calls.hold().await?;
            match held.connection().generation() {
                0 => return self.learn_lineage(held).await,
                // A pooler may route each call to another server; there each response shows the history.
                theirs if self.link.pooled || theirs == self.lineage.generation() => return Ok(held),
                // Its server has been replaced in the meantime.
                _ => held.close(),
            }
        }
    }

    /// Reads the history of a connection's server.
    pub(crate) async fn learn_lineage(&self, held: Held) -> Result<Held, StoreError> {
        let (now, remembered) = (self.now(), self.lineage.remembered());
        let mut params: Vec<Param<'_>> = vec![(&now, Type::INT8)];
        params.extend(remembered.iter().map(|number| (number as &(dyn ToSql + Sync), Type::INT8)));
        let rows = held.client().query_typed(&self.statements.lineage_check.0, &params).await;
        let rows = rows.map_err(|error| from_server(&error, self.link.deadline))?;
        let reply = rows.first().ok_or_else(cut_short)?;
        let reply: Vec<i64> = reply.try_get(reply.len() - 1).map_err(StoreError::misconfigured)?;
        held.connection().belongs_to(self.lineage.learn(&reply)?);
        Ok(held)
    }

    /// Checks once whether the server can be used. In the background: a caller that is not polled must not block the
    /// others.
    pub(crate) async fn ready(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.is_ready() {
            return Ok(());
        }
        let inner = self.clone();
        let ready = async move {
            timeout(SETUP_MAX, inner.get_ready()).await.unwrap_or(Err(StoreError::Deadline(SETUP_MAX)))
        };
        self.builder.background.run_attached(ready).await?
    }

    async fn get_ready(&self) -> Result<(), StoreError> {
        let _one = self.setup.lock().await;
        if self.ready.load(Relaxed) {
            return Ok(());
        }
        if self.builder.migrates {
            self.schema.migrate(&self.link).await?;
        }
        self.check().await?;
        self.ready.store(true, Relaxed);
        Ok(())
    }

    /// Checks the server's settings and history, and the other hosts of the address.
    pub(crate) async fn check(&self) -> Result<SchemaReport, StoreError> {
        let mut report = self.schema.check(&self.link).await?;
        self.learn_lineage(self.link.control.hold().await?).await?.give_back();
        if self.other_primary().await? {
            report.warnings.push(SchemaWarning::SecondPrimary);
        }
        *self.report.lock() = Some(report.clone());
        Ok(report)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Relaxed)
    }

    /// Returns the time around which local calendars are encoded. The server decides at its own.
    pub(crate) fn about_now(&self) -> Timestamp {
        self.builder.clock.as_ref().map_or_else(|| WallClock.now(), Clock::now)
    }

    /// Returns the time to decide at; `None` for the server's.
    pub(crate) fn now(&self) -> Option<i64> {
        self.builder.clock.as_ref().map(|clock| clock.now().as_micros() as i64)
    }
}

impl Statements {
    fn of(builder: &PostgresStoreBuilder) -> Result<Self, StoreError> {
        let schema = Schema::of(builder)?.quoted();
        let settings = settings(builder);
        // Computed before the call, so it covers every charge with an earlier response.
        let history = match builder.pooled {
            true => format!("{schema}.lineage_seen(), "),
            false => "pg_current_wal_flush_lsn(), ".into(),
        };
        let bare = |function: &str| Statement(format!("SELECT {settings}{schema}.{function}").into());
        let call =
            |function: &str| Statement(format!("SELECT {history}{settings}{schema}.{function}").into());
        // The server computes columns in order, and the last setting counts.
        let within = |wait: &str, function: &str| {
            let wait = format!("set_config('lock_timeout', {wait}, true)");
            Statement(format!("SELECT {history}{settings}{wait}, {schema}.{function}").into())
        };
        Ok(Self {
            admit_one: call("admit_one($1, $2, $3, $4, $5, $6, $7, $8, $9)"),
            admit: call("admit($1, $2, $3, $4, $5, $6)"),
            admit_one_within: within("$10", "admit_one($1, $2, $3, $4, $5, $6, $7, $8, $9)"),
            admit_within: within("$7", "admit($1, $2, $3, $4, $5, $6)"),
            peek: call("peek($1, $2, $3)"),
            settle: call("settle($1, $2, $3, $4, $5, $6)"),
            lend: call("lend($1, $2, $3, $4, $5)"),
            give_back: call("give_back($1, $2, $3, $4)"),
            debit: call("debit($1, $2, $3, $4, $5, $6)"),
            grant_region: call("grant_region($1, $2, $3, $4, $5, $6, $7, $8, $9)"),
            acquire_slot: call("slot_acquire($1, $2, $3::uuid, $4::uuid, $5, $6)"),
            heartbeat_slots: call("slot_beat($1, $2, $3, $4, $5, $6)"),
            release_slots: call("slot_release($1, $2, $3, $4, $5)"),
            slot_occupancy: call("slot_occupancy($1, $2)"),
            swap_membership: call("swap_roll($1, $2, $3, $4, $5)"),
            forget: call("forget($1)"),
            lineage_check: bare("lineage_check($1, $2, $3, $4, $5, $6)"),
            probe_write: bare("probe_write($1, $2)"),
        })
    }
}

/// Returns the settings that each call applies to its transaction, if sessions cannot hold them. The server computes
/// the columns of a row in order, so these come before the call.
fn settings(builder: &PostgresStoreBuilder) -> String {
    if !builder.pooled {
        return String::new();
    }
    let set = |name: &str, value: &str| format!("set_config('{name}', '{value}', true), ");
    let mut settings = set("lock_timeout", &builder.lock_wait()) + &set("enable_seqscan", "off");
    if builder.durability == Durability::Deferred {
        settings += &set("synchronous_commit", "off");
    }
    settings
}

impl Store for PostgresStore {
    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        self.inner.lineage.uses(asks.iter().flat_map(|ask| ask.charges).map(|charge| charge.form));
        outcomes(asks, &self.call(self.inner.admit(asks)).await?)
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        let countable = Countable::of(debits);
        self.inner.lineage.uses(debits.iter().map(|debit| debit.charge.form));
        let debited = match &countable.debits[..] {
            [] => Vec::new(),
            debits => {
                self.call(self.inner.debit(debits)).await.unwrap_or_else(|e| vec![Err(e); debits.len()])
            }
        };
        countable.answers(debited)
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Snapshot, StoreError> {
        self.inner.lineage.uses(charges.iter().map(|charge| charge.form));
        let keys: Vec<&str> = charges.iter().map(|charge| charge.key).collect();
        let kinds: Vec<i32> = charges.iter().map(|charge| looked_at(charge.form)).collect();
        let now = self.inner.now();
        let params: [Param<'_>; 3] =
            [(&now, Type::INT8), (&keys, Type::TEXT_ARRAY), (&kinds, Type::INT4_ARRAY)];
        let look = self.inner.numbers(&self.inner.statements.peek, &params);
        sight(charges, &self.call(look).await?)
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        let Corrections { keys, slots, kinds, owes, numbers } =
            Corrections::of(settlements, self.inner.about_now());
        if keys.is_empty() {
            return Ok(());
        }
        let now = self.inner.now();
        let params: [Param<'_>; 6] = [
            (&now, Type::INT8),
            (&keys, Type::TEXT_ARRAY),
            (&slots, Type::INT4_ARRAY),
            (&kinds, Type::INT4_ARRAY),
            (&owes, Type::BOOL_ARRAY),
            (&numbers, Type::INT8_ARRAY),
        ];
        self.call(self.inner.run(&self.inner.statements.settle, &params)).await
    }

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        let lendable = Lendable::of(asks);
        self.inner.lineage.uses(asks.iter().map(|ask| ask.form));
        let lent = match &lendable.asks[..] {
            [] => Vec::new(),
            asks => self.call(self.inner.lend(asks)).await.unwrap_or_else(|e| vec![Err(e); asks.len()]),
        };
        lendable.answers(lent)
    }

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        backs.iter().try_for_each(|given| given.authority().map(drop))?;
        self.call(self.inner.give_back(backs)).await
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        let keys = sorted(keys.iter().copied());
        let params: [Param<'_>; 1] = [(&keys, Type::TEXT_ARRAY)];
        self.call(self.inner.run(&self.inner.statements.forget, &params)).await
    }

    fn local_shares(&self) -> Option<&LocalShares> {
        Some(&self.local_shares)
    }

    fn background(&self) -> Background {
        self.line.background().clone()
    }

    /// Returns the guarantee. Not exact if a crash may lose charges, by the settings of this store or of the server.
    /// Nor if charges that still count may have been lost already, or are counted on another primary.
    fn guarantee(&self) -> Guarantee {
        let forgets = |report: &SchemaReport| {
            let serious = [
                SchemaWarning::Unlogged,
                SchemaWarning::CommitNotAwaited,
                SchemaWarning::NoFsync,
                SchemaWarning::SecondPrimary,
            ];
            report.warnings.iter().any(|warning| serious.contains(warning))
        };
        if self.inner.report.lock().as_ref().is_some_and(forgets) {
            Guarantee::Bounded(u64::MAX)
        } else {
            self.inner.builder.guarantee().weaker(self.inner.lineage.guarantee())
        }
    }
}

throttlekit::debug_fields!([] PostgresStore, |it| builder = it.inner.builder);
