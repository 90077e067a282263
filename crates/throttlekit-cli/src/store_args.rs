//! Options that select and open a store.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Result;
use throttlekit_postgres::Durability;
use throttlekit_redis::Failover;
use throttlekit_server::{ServerError, StoreOptions, StoreUrl};

use crate::file;

/// The store and the options for connecting to it.
#[derive(clap::Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// Keep counts in this store: `memory`, `redis://…`, `redis+cluster://a,b`, `redis+sentinel://a,b/service`,
    /// `postgres://…`; `rediss` for TLS
    #[arg(long, default_value = "memory", value_name = "URL")]
    store: String,
    /// Read the password for the store from this file; the URL has none then
    #[arg(long, value_name = "FILE")]
    store_password_file: Option<PathBuf>,
    /// Read the password of the Sentinels themselves from this file
    #[arg(long, value_name = "FILE")]
    store_sentinel_password_file: Option<PathBuf>,
    /// Limit each call to the store to this time, in milliseconds; default: the store's own
    #[arg(long, value_name = "MS")]
    store_deadline_ms: Option<u64>,
    /// Trust these CA certificates for connections to the store, in PEM
    #[arg(long, value_name = "FILE")]
    store_ca: Option<PathBuf>,
    /// Present this client certificate to the store, in PEM
    #[arg(long, value_name = "FILE", requires = "store_key")]
    store_cert: Option<PathBuf>,
    /// Use this private key for the client certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "store_cert")]
    store_key: Option<PathBuf>,
    /// Handle charges that a failover of Redis may lose: `async`, `async:MS` to count them by samples at this interval,
    /// `wait:REPLICAS` to wait for that many replicas, `fence:SECONDS` to refuse keys that may have lost charges
    #[arg(long, value_name = "MODE")]
    store_failover: Option<FailoverMode>,
    /// Connect to PostgreSQL through a pooler in transaction mode, such as PgBouncer
    #[arg(long)]
    store_pooled: bool,
    /// Accept that a crash of PostgreSQL loses recent counts (`deferred`) or all (`unlogged`)
    #[arg(long, value_name = "DURABILITY", value_parser = durability)]
    store_durability: Option<Durability>,
    /// Open at most this many connections to PostgreSQL
    #[arg(long, value_name = "COUNT")]
    store_connections: Option<usize>,
    /// Keep tables and functions in this schema of PostgreSQL; default: `throttlekit`
    #[arg(long, value_name = "NAME")]
    store_schema: Option<String>,
}

impl StoreArgs {
    /// Returns the URL of the store and its options.
    pub(crate) fn load(&self) -> Result<(StoreUrl, StoreOptions)> {
        let url = StoreUrl::parse(&self.store).map_err(anyhow::Error::msg)?;
        let bytes = |path: &Option<PathBuf>| path.as_deref().map(file::read).transpose();
        let mut options = StoreOptions::default();
        options.deadline = self.store_deadline_ms.map(Duration::from_millis);
        options.ca = bytes(&self.store_ca)?;
        options.identity = bytes(&self.store_cert)?.zip(bytes(&self.store_key)?);
        options.password = password(self.store_password_file.as_deref())?;
        options.sentinel_password = password(self.store_sentinel_password_file.as_deref())?;
        options.failover = self.store_failover.map(|mode| mode.with(options.deadline));
        options.pooled = self.store_pooled;
        options.durability = self.store_durability;
        options.connections = self.store_connections;
        options.schema.clone_from(&self.store_schema);
        Ok((url, options))
    }
}

/// Creates the error for a store that failed. Leaves out the store's URL, since it may hold a password.
pub(crate) fn store_fails(url: &StoreUrl, error: &ServerError) -> anyhow::Error {
    anyhow::anyhow!("--store ({}): {error}", url.kind())
}

/// Reads a password: the first line of a file.
fn password(path: Option<&Path>) -> Result<Option<String>> {
    let Some(path) = path else { return Ok(None) };
    let text = String::from_utf8(file::read(path)?)?;
    let line = text.lines().next().unwrap_or_default();
    anyhow::ensure!(!line.is_empty(), "{}: the password is empty", path.display());
    Ok(Some(line.to_owned()))
}

fn durability(text: &str) -> Result<Durability, String> {
    match text {
        "flushed" => Ok(Durability::Flushed),
        "deferred" => Ok(Durability::Deferred),
        "unlogged" => Ok(Durability::Unlogged),
        _ => Err("expected `flushed`, `deferred` or `unlogged`".into()),
    }
}

/// A failover mode, as a command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailoverMode {
    Async(Option<Duration>),
    Wait(u32),
    Fence(Duration),
}

/// Share of a call's time that is left for waiting for replicas.
const WAIT_SHARE: f64 = 0.8;
/// Timeout of a call to Redis, unless another is set.
const DEADLINE: Duration = Duration::from_millis(100);

impl FailoverMode {
    fn with(self, deadline: Option<Duration>) -> Failover {
        match self {
            Self::Async(sample) => Failover::Async { sample },
            Self::Wait(replicas) => {
                Failover::Wait { replicas, within: deadline.unwrap_or(DEADLINE).mul_f64(WAIT_SHARE) }
            }
            Self::Fence(isolation) => Failover::Fence { isolation },
        }
    }
}

impl FromStr for FailoverMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mode, number) = text.split_once(':').map_or((text, None), |(mode, number)| (mode, Some(number)));
        let number = number.map(str::parse::<u32>).transpose().map_err(|_| EXPECTED)?;
        match (mode, number) {
            ("async", sample) => Ok(Self::Async(sample.map(|ms| Duration::from_millis(ms.into())))),
            ("wait", Some(replicas)) => Ok(Self::Wait(replicas)),
            ("fence", Some(seconds)) => Ok(Self::Fence(Duration::from_secs(seconds.into()))),
            _ => Err(EXPECTED.into()),
        }
    }
}

const EXPECTED: &str = "expected `async`, `async:MS`, `wait:REPLICAS` or `fence:SECONDS`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failover_mode_has_its_number() {
        let parsed = |text: &str| text.parse::<FailoverMode>();
        assert_eq!(parsed("async"), Ok(FailoverMode::Async(None)));
        assert_eq!(parsed("async:100"), Ok(FailoverMode::Async(Some(Duration::from_millis(100)))));
        assert_eq!(parsed("wait:2"), Ok(FailoverMode::Wait(2)));
        assert_eq!(parsed("fence:5"), Ok(FailoverMode::Fence(Duration::from_secs(5))));
        for wrong in ["wait", "fence", "fence:", "wait:x", "sync"] {
            assert_eq!(parsed(wrong), Err(EXPECTED.into()), "{wrong}");
        }
        let waits = parsed("wait:1").unwrap().with(Some(Duration::from_secs(1)));
        assert_eq!(waits, Failover::Wait { replicas: 1, within: Duration::from_millis(800) });
    }
}
