//! The builder of a store.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::Guarantee;
use throttlekit::clock::Clock;
use throttlekit::store::{Background, StoreClientOptions, StoreError};
use tokio::runtime::Handle;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::PostgresStore;
use crate::connect::{Connector, Tls};
use crate::schema::Schema;
use crate::seeded::Seeded;
use crate::store_connections::StoreConnections;

/// A commit flushes the log to disk, which at its slowest takes longer than a response of an in-memory store.
const DEADLINE: Duration = Duration::from_millis(250);
const CONNECTIONS: usize = 4;
const GRACE: Duration = Duration::from_secs(10);

/// Data that a crash of the server may lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing: each admission is on disk before its response. The server's own setting determines whether it is also
    /// on a standby.
    #[default]
    Flushed,
    /// The most recent admissions: those of at most three times `wal_writer_delay` (0.6 s by default). Much faster on a
    /// hot key.
    Deferred,
    /// Everything. The table is not logged: a crash empties it, and a standby does not have it. Fastest.
    Unlogged,
}

/// Builds a [`PostgresStore`].
#[derive(Clone)]
pub struct PostgresStoreBuilder {
    url: String,
    pub(crate) schema: String,
    pub(crate) line: StoreClientOptions,
    pub(crate) background: Background,
    pub(crate) connections: usize,
    pub(crate) pooled: bool,
    pub(crate) durability: Durability,
    pub(crate) migrates: bool,
    pub(crate) grace: Duration,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) seeded: Seeded,
    #[cfg(feature = "tls")]
    tls: Option<rustls::ClientConfig>,
}

impl PostgresStoreBuilder {
    pub(crate) fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: "throttlekit".into(),
            line: StoreClientOptions { deadline: DEADLINE, ..StoreClientOptions::default() },
            background: Background::default(),
            connections: CONNECTIONS,
            pooled: false,
            durability: Durability::default(),
            migrates: false,
            grace: GRACE,
            clock: None,
            seeded: Seeded::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Sets the timeout of a call, waiting for a connection included. Default: 250 ms.
    ///
    /// The server stops a little earlier. If it does not, as in a commit that hangs, the call is canceled there.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.line.deadline = deadline;
        self
    }

    /// Sets all options of the [`StoreClient`](throttlekit::store::StoreClient).
    pub fn line(self, line: StoreClientOptions) -> Self {
        Self { line, ..self }
    }

    /// Runs connections and all background work of the store, and of everything built on it, on your runtime, which
    /// must be driven for as long as the store is used. Default: a driver thread of the process.
    pub fn runtime(self, runtime: Handle) -> Self {
        Self { background: self.background.on(runtime), ..self }
    }

    /// Sets the schema for the table and the functions: lowercase letters, digits and `_`. Default: `throttlekit`.
    pub fn schema(self, name: impl Into<String>) -> Self {
        Self { schema: name.into(), ..self }
    }

    /// Sets the maximum number of connections for calls. One more connection checks and probes the server. Default: 4;
    /// few are best, since calls that wait for one are batched and share a commit.
    ///
    /// Never exceeded, also while the server hangs: an abandoned call is canceled on the server, and its connection
    /// counts until the server has responded. Behind a pooler nothing is canceled.
    pub fn connections(self, most: usize) -> Self {
        Self { connections: most.max(1), ..self }
    }

    /// Sets whether connections go through a pooler such as PgBouncer in transaction mode. Then nothing is kept in a
    /// session, neither named statements nor settings, and abandoned calls are not canceled, since a cancel request may
    /// crash the pooler.
    pub fn pooled(self, pooled: bool) -> Self {
        Self { pooled, ..self }
    }

    /// Sets which data a crash of the server may lose. [`Durability::Unlogged`] takes effect when the table is created.
    pub fn durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// Sets whether connecting also creates or upgrades the schema, for which the role needs the privileges. Default:
    /// off; then call [`migrate`](Self::migrate) separately.
    pub fn migrate_on_connect(self, migrates: bool) -> Self {
        Self { migrates, ..self }
    }

    /// Sets how long a row must be idle before it is swept: the largest step back of the server's clock that does not
    /// grant a fresh budget. Default: 10 s.
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Decides at the time of this clock instead of the server's. For tests.
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        Self { clock: Some(Arc::new(clock)), ..self }
    }

    /// Encrypts connections.
    #[cfg(feature = "tls")]
    pub fn tls(self, config: rustls::ClientConfig) -> Self {
        Self { tls: Some(config), ..self }
    }

    /// Seeds a bug in the store.
    #[cfg(feature = "seeded")]
    #[doc(hidden)]
    pub fn seeded(self, bug: Option<crate::SeededBug>) -> Self {
        Self { seeded: Seeded { bug }, ..self }
    }

    /// Opens the store.
    ///
    /// An unreachable server is no error: the store returns [`StoreError::Unavailable`], probes the server, and resumes
    /// when it is back. A server that responds and cannot be used is an error, as is an invalid address.
    pub async fn connect(self) -> Result<PostgresStore, StoreError> {
        PostgresStore::connect_with(self).await
    }

    /// Creates or upgrades the schema; does nothing if it is up to date. Any number of processes may do so at once.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let link = self.link()?;
        Schema::of(self)?.migrate(&link).await
    }

    pub(crate) fn link(&self) -> Result<StoreConnections, StoreError> {
        let mut config: Config = self.url.parse().map_err(|error: tokio_postgres::Error| {
            let why =
                std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            StoreError::misconfigured(format_args!("invalid address: {why}"))
        })?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(self.line.deadline.max(Duration::from_secs(1)));
        }
        self.settle_tls(&mut config)?;
        if !self.pooled {
            let options = self.session_options(config.get_options().unwrap_or_default());
            config.options(options);
        }
        let connector = Connector::new(config, self.connector(), self.pooled);
        Ok(StoreConnections::new(connector, self))
    }

    /// With a TLS configuration, connections are never in plaintext; an address that requires TLS gets it or an error.
    #[cfg(feature = "tls")]
    fn settle_tls(&self, config: &mut Config) -> Result<(), StoreError> {
        if self.tls.is_some() {
            config.ssl_mode(SslMode::Require);
        }
        tls_or_not(config, self.tls.is_some())
    }

    #[cfg(not(feature = "tls"))]
    #[allow(clippy::unused_self, reason = "the same call with and without the feature")]
    fn settle_tls(&self, config: &mut Config) -> Result<(), StoreError> {
        tls_or_not(config, false)
    }

    /// Returns the options of each session. Our settings come last, and the last one counts.
    ///
    /// A statement on a table that is empty when its session first runs it would be planned as a sequential scan, and
    /// remain so while the table grows; hence no sequential scans.
    fn session_options(&self, theirs: &str) -> String {
        let mut options = format!(
            "{theirs} -c default_transaction_isolation=read\\ committed -c enable_seqscan=off \
             -c lock_timeout={} -c statement_timeout={}",
            self.lock_wait(),
            in_millis(self.line.deadline.mul_f64(0.9)),
        );
        if self.durability == Durability::Deferred {
            options.push_str(" -c synchronous_commit=off");
        }
        options
    }

    /// Returns how long the server may wait for a row.
    pub(crate) fn lock_wait(&self) -> String {
        in_millis(self.row_wait())
    }

    pub(crate) fn row_wait(&self) -> Duration {
        self.line.deadline.mul_f64(0.8)
    }

    fn connector(&self) -> Tls {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return Tls::On(tokio_postgres_rustls::MakeRustlsConnect::new(tls.clone()));
        }
        Tls::Off
    }

    /// Returns the guarantee. The amount that a crash loses is unknown, so it is not exact, and no number is claimed.
    pub(crate) fn guarantee(&self) -> Guarantee {
        match self.durability {
            Durability::Flushed => Guarantee::Exact,
            Durability::Deferred | Durability::Unlogged => Guarantee::Bounded(u64::MAX),
        }
    }
}

/// Formats a wait for the server. Zero would mean no timeout.
pub(crate) fn in_millis(wait: Duration) -> String {
    format!("{}ms", wait.as_millis().max(1))
}

fn tls_or_not(config: &Config, tls: bool) -> Result<(), StoreError> {
    if !tls && config.get_ssl_mode() == SslMode::Require {
        return Err(StoreError::misconfigured(
            "the address requires TLS: configure it with PostgresStoreBuilder::tls, feature `tls`",
        ));
    }
    Ok(())
}

// Without the address, which may include a password.
throttlekit::debug_fields!([] PostgresStoreBuilder, |it| schema = it.schema, line = it.line);
