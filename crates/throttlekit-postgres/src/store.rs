//! The store.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use throttlekit::store::{
    Charge, Charges, Countable, Debit, Debited, GiveBack, LeaseAsk, Lendable, Lent, Line, LineStats,
    LocalShares,
};
use throttlekit::store::{Outcome, Settlement, Sight, Store, StoreError};
use throttlekit::{Clock, Guarantee};
use tokio::time::timeout;
use tokio_postgres::types::Type;

use crate::builder::{Builder, Durability, in_millis};
use crate::error::Failure;
use crate::lanes::Lanes;
use crate::link::{Link, Param, Statement};
use crate::parcel::{Corrections, Flight, kind, outcomes, sight, sorted};
use crate::schema::{MIGRATION_MAX, Report, Schema, Warning};

/// How long a start waits for a server that neither answers nor refuses.
const SETUP_MAX: Duration = MIGRATION_MAX.saturating_add(Duration::from_secs(5));

/// Limits kept in PostgreSQL, decided by functions there.
///
/// Cheap to clone; clones share connections, breaker and counters.
#[derive(Clone)]
pub struct PostgresStore {
    pub(crate) inner: Arc<Inner>,
    line: Line,
    local_shares: LocalShares,
}

pub(crate) struct Inner {
    pub(crate) link: Link,
    pub(crate) schema: Schema,
    pub(crate) builder: Builder,
    pub(crate) lanes: Lanes,
    pub(crate) statements: Statements,
    /// Whether the server was found fit since the store was made.
    ready: AtomicBool,
    /// Held while finding out, so that one caller does.
    setup: tokio::sync::Mutex<()>,
    report: Mutex<Option<Report>>,
}

pub(crate) struct Statements {
    admit_one: Statement,
    admit: Statement,
    /// The same, told how long to wait for a row.
    admit_one_within: Statement,
    admit_within: Statement,
    peek: Statement,
    settle: Statement,
    pub(crate) lend: Statement,
    pub(crate) give_back: Statement,
    pub(crate) debit: Statement,
    pub(crate) grant_region: Statement,
    pub(crate) acquire_slot: Statement,
    pub(crate) beat_slots: Statement,
    pub(crate) release_slots: Statement,
    pub(crate) slot_occupancy: Statement,
    pub(crate) swap_roll: Statement,
    forget: Statement,
}

impl PostgresStore {
    /// A store at this address, such as `postgres://user:password@host:5432/database`.
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder::new(url)
    }

    pub(crate) async fn connect(builder: Builder) -> Result<Self, StoreError> {
        let inner = Arc::new(Inner {
            link: builder.link()?,
            schema: Schema::of(&builder)?,
            statements: Statements::of(&builder)?,
            lanes: Lanes::new(builder.connections),
            ready: AtomicBool::new(false),
            setup: tokio::sync::Mutex::default(),
            report: Mutex::default(),
            builder,
        });
        let line = Line::new(inner.builder.line, inner.clone().into_probe());
        match timeout(SETUP_MAX, inner.ready()).await.unwrap_or(Err(StoreError::Deadline(SETUP_MAX))) {
            Ok(()) => {}
            Err(error) if error.is_outage() => line.open(),
            Err(error) => return Err(error),
        }
        Ok(Self { inner, line, local_shares: LocalShares::default() })
    }

    /// Looks again whether the server can be used, and at what weakens the promise.
    pub async fn check(&self) -> Result<Report, StoreError> {
        self.line.call(self.inner.check()).await
    }

    /// What the last look found; nothing while the server has been away since the start.
    pub fn report(&self) -> Option<Report> {
        self.inner.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes one call. That the server gave up a wait and undid the call is an answer, if not the one hoped for: the
    /// server is there, so the breaker does not count it.
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
        self.line.call(work).await?
    }

    /// What the way to the server has seen. A call that the server itself ended, for want of a row or of time, is
    /// neither failed nor timed out there.
    pub fn line_stats(&self) -> LineStats {
        self.line.stats()
    }
}

impl Inner {
    /// Sends asks of a caller who waits for them alone.
    pub(crate) async fn send_asks(&self, asks: &[Charges<'_>]) -> Result<Vec<i64>, Failure> {
        self.send(&Flight::of(asks), None).await
    }

    /// Sends a flight, which waits for each row as long as it is told, or else as the session does.
    pub(crate) async fn send(
        &self,
        flight: &Flight<'_>,
        row_wait: Option<Duration>,
    ) -> Result<Vec<i64>, Failure> {
        let row_wait = row_wait.map(in_millis);
        let statements = &self.statements;
        let (now, int) = (self.now(), Type::INT8);
        match flight {
            Flight::One { key, kind, numbers: [a, b, c, d, e] } => {
                let mut params: Vec<Param<'_>> = vec![
                    (&now, int.clone()),
                    (key, Type::TEXT),
                    (kind, Type::INT4),
                    (a, int.clone()),
                    (b, int.clone()),
                    (c, int.clone()),
                    (d, int.clone()),
                    (e, int),
                ];
                let Some(wait) = &row_wait else { return self.numbers(&statements.admit_one, &params).await };
                params.push((wait, Type::TEXT));
                self.numbers(&statements.admit_one_within, &params).await
            }
            Flight::Many { keys, asks, slots, kinds, numbers } => {
                let mut params: Vec<Param<'_>> = vec![
                    (&now, int),
                    (keys, Type::TEXT_ARRAY),
                    (asks, Type::INT4_ARRAY),
                    (slots, Type::INT4_ARRAY),
                    (kinds, Type::INT4_ARRAY),
                    (numbers, Type::INT8_ARRAY),
                ];
                let Some(wait) = &row_wait else { return self.numbers(&statements.admit, &params).await };
                params.push((wait, Type::TEXT));
                self.numbers(&statements.admit_within, &params).await
            }
        }
    }

    /// What a function answers comes last, after settings.
    pub(crate) async fn numbers(
        &self,
        statement: &Statement,
        params: &[Param<'_>],
    ) -> Result<Vec<i64>, Failure> {
        let row = self.link.one_row(statement, params).await?;
        row.try_get(row.len() - 1).map_err(|error| StoreError::misconfigured(error).into())
    }

    /// Calls a function that answers nothing.
    pub(crate) async fn run(&self, statement: &Statement, params: &[Param<'_>]) -> Result<(), Failure> {
        self.ready().await?;
        self.link.one_row(statement, params).await.map(drop)
    }

    /// Finds out once whether the server can be used.
    pub(crate) async fn ready(&self) -> Result<(), StoreError> {
        if self.ready.load(Relaxed) {
            return Ok(());
        }
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

    async fn check(&self) -> Result<Report, StoreError> {
        let report = self.schema.check(&self.link).await?;
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
        Ok(report)
    }

    /// A server that answers is back, also where it cannot be used: whoever asks next is told why.
    fn into_probe(self: Arc<Self>) -> throttlekit::store::Probe {
        Box::new(move || {
            let inner = self.clone();
            Box::pin(async move {
                let answer = if inner.ready.load(Relaxed) {
                    inner.check().await.map(drop)
                } else {
                    inner.ready().await
                };
                answer.err().filter(StoreError::is_outage).map_or(Ok(()), Err)
            })
        })
    }

    /// The instant to decide at; nothing is the server's.
    pub(crate) fn now(&self) -> Option<i64> {
        self.builder.clock.as_ref().map(|clock| clock.now().as_micros() as i64)
    }
}

impl Statements {
    fn of(builder: &Builder) -> Result<Self, StoreError> {
        let schema = Schema::of(builder)?.quoted();
        let settings = settings(builder);
        let call = |function: &str| Statement(format!("SELECT {settings}{schema}.{function}").into());
        // The server computes columns in order, and the last setting counts.
        let within = |wait: &str, function: &str| {
            let wait = format!("set_config('lock_timeout', {wait}, true)");
            Statement(format!("SELECT {settings}{wait}, {schema}.{function}").into())
        };
        Ok(Self {
            admit_one: call("admit_one($1, $2, $3, $4, $5, $6, $7, $8)"),
            admit: call("admit($1, $2, $3, $4, $5, $6)"),
            admit_one_within: within("$9", "admit_one($1, $2, $3, $4, $5, $6, $7, $8)"),
            admit_within: within("$7", "admit($1, $2, $3, $4, $5, $6)"),
            peek: call("peek($1, $2, $3)"),
            settle: call("settle($1, $2, $3, $4, $5, $6)"),
            lend: call("lend($1, $2, $3, $4, $5)"),
            give_back: call("give_back($1, $2, $3, $4)"),
            debit: call("debit($1, $2, $3, $4, $5, $6)"),
            grant_region: call("grant_region($1, $2, $3, $4, $5, $6, $7, $8, $9)"),
            acquire_slot: call("slot_acquire($1, $2, $3::uuid, $4::uuid, $5, $6)"),
            beat_slots: call("slot_beat($1, $2, $3, $4, $5, $6)"),
            release_slots: call("slot_release($1, $2, $3, $4, $5)"),
            slot_occupancy: call("slot_occupancy($1, $2)"),
            swap_roll: call("swap_roll($1, $2, $3, $4, $5)"),
            forget: call("forget($1)"),
        })
    }
}

/// Where sessions cannot be told our settings, each call tells its own transaction. The server computes the columns of
/// a row in order, so these come before the call.
fn settings(builder: &Builder) -> String {
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
        outcomes(asks, &self.call(self.inner.admit(asks)).await?)
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        let countable = Countable::of(debits);
        let debited = match &countable.debits[..] {
            [] => Vec::new(),
            debits => {
                self.call(self.inner.debit(debits)).await.unwrap_or_else(|e| vec![Err(e); debits.len()])
            }
        };
        countable.answers(debited)
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Sight, StoreError> {
        let keys: Vec<&str> = charges.iter().map(|charge| charge.key).collect();
        let kinds: Vec<i32> = charges.iter().map(|charge| kind(charge.form)).collect();
        let now = self.inner.now();
        let params: [Param<'_>; 3] =
            [(&now, Type::INT8), (&keys, Type::TEXT_ARRAY), (&kinds, Type::INT4_ARRAY)];
        let look = async {
            self.inner.ready().await?;
            self.inner.numbers(&self.inner.statements.peek, &params).await
        };
        sight(charges, &self.call(look).await?)
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        let Corrections { keys, slots, kinds, owes, numbers } = Corrections::of(settlements);
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

    async fn lease(&self, asks: &[LeaseAsk<'_>]) -> Vec<Result<Lent, StoreError>> {
        let lendable = Lendable::of(asks);
        let lent = match &lendable.asks[..] {
            [] => Vec::new(),
            asks => self.call(self.inner.lend(asks)).await.unwrap_or_else(|e| vec![Err(e); asks.len()]),
        };
        lendable.answers(lent)
    }

    async fn give_back(&self, backs: &[GiveBack<'_>]) -> Result<(), StoreError> {
        backs.iter().try_for_each(|given| given.authority().map(drop))?;
        self.call(self.inner.give_back(backs)).await
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        let keys = sorted(keys.iter().copied());
        let params: [Param<'_>; 1] = [(&keys, Type::TEXT_ARRAY)];
        self.call(self.inner.run(&self.inner.statements.forget, &params)).await
    }

    /// Not exact where a crash may forget, whoever chose so: this store or the server's settings.
    fn local_shares(&self) -> Option<&LocalShares> {
        Some(&self.local_shares)
    }

    fn guarantee(&self) -> Guarantee {
        let forgets = |report: &Report| {
            let serious = [Warning::Unlogged, Warning::CommitNotAwaited, Warning::NoFsync];
            report.warnings.iter().any(|warning| serious.contains(warning))
        };
        if self.inner.report.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(forgets) {
            Guarantee::Bounded(u64::MAX)
        } else {
            self.inner.builder.guarantee()
        }
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("builder", &self.inner.builder).finish_non_exhaustive()
    }
}
