//! The table and the functions on the server: migration and checks.

use std::fmt;
use std::time::Duration;

use throttlekit::store::StoreError;
use tokio::time::timeout;
use tokio_postgres::types::Type;

use crate::builder::{Durability, PostgresStoreBuilder};
use crate::error::from_server;
use crate::store_connections::{Statement, StoreConnections};

/// Increases with every change of the table or of a function's parameters or result.
const VERSION: i32 = 7;
const SERVER_MIN: i32 = 130_000;
/// Key of the advisory lock under which one process at a time migrates. Any otherwise unused number works.
const MIGRATION_LOCK: i64 = 0x7468_726f_7474_6c65;
pub(crate) const MIGRATION_MAX: Duration = Duration::from_secs(30);
const NAME_MAX: usize = 63;

const TABLES: &str = include_str!("../sql/tables.sql");
const FUNCTIONS: &str = include_str!("../sql/functions.sql");
const LENDING: &str = include_str!("../sql/lending.sql");
const DEBITS: &str = include_str!("../sql/debits.sql");
const POOL: &str = include_str!("../sql/pool.sql");
const SLOTS: &str = include_str!("../sql/slots.sql");
const MEMBERSHIP: &str = include_str!("../sql/membership.sql");
const LINEAGE: &str = include_str!("../sql/lineage.sql");
const FRAGMENTS: [(&str, &str); 4] = [
    ("@declare@", include_str!("../sql/declare.sql")),
    ("@decide@", include_str!("../sql/decide.sql")),
    ("@charge@", include_str!("../sql/charge.sql")),
    // A double holds the seconds of this century to a quarter of a microsecond.
    ("@clock@", "coalesce(p_now, (date_part('epoch', clock_timestamp()) * 1000000)::bigint)"),
];

/// The result of a check of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaReport {
    /// PostgreSQL's version number: 150018 is 15.18.
    pub server_version: i32,
    /// Settings that weaken a guarantee. Ideally empty.
    pub warnings: Vec<SchemaWarning>,
}

/// A setting that weakens a guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaWarning {
    /// A crash empties the table: with R crashes, up to (1 + R) times the limit is admitted in one window.
    Unlogged,
    /// `synchronous_commit` is off: a crash loses the admissions of up to three times `wal_writer_delay`.
    CommitNotAwaited,
    /// `fsync` is off: a crash of the machine may lose or corrupt anything.
    NoFsync,
    /// `synchronous_commit` is local while standbys are synchronous: a failover loses what they had not received.
    StandbyNotAwaited,
    /// A standby is asynchronous: a failover to it loses what it had not received.
    AsynchronousStandby,
    /// Another host of the address is also a primary: charges there do not count here.
    SecondPrimary,
}

impl fmt::Display for SchemaWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unlogged => {
                "the table is unlogged: a crash empties it, and every key starts again from zero"
            }
            Self::CommitNotAwaited => "synchronous_commit is off: a crash loses the last charges",
            Self::NoFsync => "fsync is off: a crash of the machine may lose any number of charges",
            Self::StandbyNotAwaited => "synchronous_commit is local: a failover loses the last charges",
            Self::AsynchronousStandby => {
                "a standby is asynchronous: a failover to it loses charges that it had not received"
            }
            Self::SecondPrimary => {
                "another host of the address is also a primary: each admits up to the limit"
            }
        })
    }
}

/// A schema by its name, and the options of its table.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    name: String,
    unlogged: bool,
}

impl Schema {
    pub(crate) fn of(builder: &PostgresStoreBuilder) -> Result<Self, StoreError> {
        let name = builder.schema.clone();
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let letter_first = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
        if !letter_first || name.len() > NAME_MAX || !name.bytes().all(legal) || name.starts_with("pg_") {
            return Err(StoreError::misconfigured(format_args!(
                "invalid schema name {name:?}: expected lowercase letters, digits and _, no leading digit \
                 and no pg_ prefix"
            )));
        }
        Ok(Self { name, unlogged: builder.durability == Durability::Unlogged })
    }

    /// Returns the quoted name.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.name)
    }

    /// Creates or upgrades the schema. One process at a time, all or nothing.
    pub(crate) async fn migrate(&self, link: &StoreConnections) -> Result<(), StoreError> {
        let work = async {
            let held = link.control.hold().await?;
            self.migrate_over(held.client(), link.deadline).await?;
            held.give_back();
            Ok(())
        };
        timeout(MIGRATION_MAX, work).await.unwrap_or(Err(StoreError::Deadline(MIGRATION_MAX)))
    }

    async fn migrate_over(
        &self,
        client: &tokio_postgres::Client,
        deadline: Duration,
    ) -> Result<(), StoreError> {
        let wrong = |error: tokio_postgres::Error| from_server(&error, deadline);
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = '{0}ms';
             SET LOCAL lock_timeout = '{0}ms'; SELECT pg_advisory_xact_lock({MIGRATION_LOCK})",
            MIGRATION_MAX.as_millis()
        );
        client.batch_execute(&begin).await.map_err(wrong)?;
        let found = self.version(client).await.map_err(wrong)?;
        if found.is_some_and(|found| found > VERSION) {
            client.batch_execute("ROLLBACK").await.map_err(wrong)?;
            return Err(self.newer(found.unwrap_or_default()));
        }
        if found == Some(VERSION) {
            return client.batch_execute("COMMIT").await.map_err(wrong);
        }
        let script = format!("{}; COMMIT", self.script());
        client.batch_execute(&script).await.map_err(wrong)
    }

    async fn version(&self, client: &tokio_postgres::Client) -> Result<Option<i32>, tokio_postgres::Error> {
        let quoted = self.quoted();
        let there = format!("SELECT to_regclass('{quoted}.version') IS NOT NULL");
        if !client.query_typed(&there, &[]).await?[0].get::<_, bool>(0) {
            return Ok(None);
        }
        let rows = client.query_typed(&format!("SELECT max(number) FROM {quoted}.version"), &[]).await?;
        Ok(rows[0].get(0))
    }

    /// Returns the whole migration, from nothing or from an older version, whose tables get what they lack. `CREATE
    /// SCHEMA` requires its privilege even if the schema exists.
    fn script(&self) -> String {
        let Self { name, unlogged } = self;
        let mut text = format!(
            "DO $do$ BEGIN IF to_regnamespace('{name}') IS NULL THEN CREATE SCHEMA @schema@; END IF; END $do$;
             CREATE TABLE IF NOT EXISTS @schema@.version (number int PRIMARY KEY);
             {TABLES} {FUNCTIONS} {LENDING} {DEBITS} {POOL} {SLOTS} {MEMBERSHIP} {LINEAGE}
             INSERT INTO @schema@.version VALUES ({VERSION}) ON CONFLICT DO NOTHING"
        );
        for (mark, fragment) in FRAGMENTS {
            text = text.replace(mark, fragment.trim_end());
        }
        text.replace("@schema@", &self.quoted())
            .replace("@unlogged@", if *unlogged { "UNLOGGED" } else { "" })
    }

    /// Checks whether the server can be used: new enough, no standby, the right schema. Reports settings that only
    /// weaken a guarantee.
    pub(crate) async fn check(&self, link: &StoreConnections) -> Result<SchemaReport, StoreError> {
        // A role that may not read statistics sees that there is a standby, not how it is attached.
        let text = "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
                    current_setting('default_transaction_isolation'), current_setting('synchronous_commit'),
                    current_setting('fsync'), current_setting('synchronous_standby_names') <> '',
                    (SELECT max(relpersistence::text) FROM pg_class WHERE oid = ANY (ARRAY(
                        SELECT to_regclass(name)::oid FROM unnest($1::text[]) name))),
                    EXISTS (SELECT FROM pg_stat_replication WHERE coalesce(sync_state, CASE
                        WHEN current_setting('synchronous_standby_names') = '' THEN 'async' ELSE 'sync'
                    END) IN ('async', 'potential'))";
        let tables = ["state", "returned", "debits", "pool", "slot_keys", "slots", "roll"]
            .map(|table| format!("{}.{table}", self.quoted()));
        let row =
            link.control_row(&Statement(text.into()), &[(&tables.as_slice(), Type::TEXT_ARRAY)]).await?;
        let persistence: Option<String> = row.get(6);
        if row.get(1) {
            // Sessions on a former primary must be closed.
            link.close_idle();
        }
        let found = if persistence.is_some() { self.found_version(link).await? } else { None };
        self.refuse(row.get(0), row.get(1), row.get(2), found)?;
        let (commit, fsync, standbys): (&str, &str, bool) = (row.get(3), row.get(4), row.get(5));
        let warnings = [
            (persistence.as_deref() == Some("u"), SchemaWarning::Unlogged),
            (commit == "off", SchemaWarning::CommitNotAwaited),
            (fsync == "off", SchemaWarning::NoFsync),
            (commit == "local" && standbys, SchemaWarning::StandbyNotAwaited),
            (row.get(7), SchemaWarning::AsynchronousStandby),
        ];
        let warnings = warnings.into_iter().filter(|(holds, _)| *holds).map(|(_, warning)| warning).collect();
        Ok(SchemaReport { server_version: row.get(0), warnings })
    }

    async fn found_version(&self, link: &StoreConnections) -> Result<Option<i32>, StoreError> {
        let text = format!("SELECT max(number) FROM {}.version", self.quoted());
        Ok(link.control_row(&Statement(text.into()), &[]).await?.get(0))
    }

    fn refuse(
        &self,
        server: i32,
        standby: bool,
        isolation: &str,
        found: Option<i32>,
    ) -> Result<(), StoreError> {
        let wrong = |why: String| Err(StoreError::misconfigured(why));
        match found {
            _ if server < SERVER_MIN => {
                wrong(format!("server version {server} is too old: expected PostgreSQL 13 or newer"))
            }
            // It may be promoted, or the address may be pointed at another server: this may resolve with time.
            _ if standby => Err(StoreError::unavailable("the server is a standby and cannot write")),
            _ if isolation != "read committed" => wrong(format!(
                "default_transaction_isolation is {isolation}; set it to read committed for this role"
            )),
            Some(VERSION) => Ok(()),
            Some(newer) if newer > VERSION => Err(self.newer(newer)),
            _ => wrong(format!(
                "the schema {} is {}; create or upgrade it once with PostgresStoreBuilder::migrate, as a \
                 role that may create it",
                self.name,
                found.map_or("missing".into(), |old| format!("version {old}, not {VERSION}")),
            )),
        }
    }

    fn newer(&self, found: i32) -> StoreError {
        let name = &self.name;
        StoreError::misconfigured(format_args!(
            "the schema {name} has version {found}, newer than the supported {VERSION}; upgrade the program"
        ))
    }
}
