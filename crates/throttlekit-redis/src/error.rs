//! Classification of server errors.

use redis::{ErrorKind, RedisError, ServerErrorKind};
use throttlekit::store::StoreError;

/// An error of one node, by how to handle it.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// Not run: the slot belongs to the node at this address now.
    Moved(String),
    /// Not run: for this call, use the node at this address.
    Ask(String),
    /// Not run: the script must be sent in full.
    NoScript,
    /// Not run: the keys of the call are migrating to another node, and not all have arrived.
    TryAgain,
    /// Not run: this node is no longer a primary.
    Demoted,
    /// Not sent: the circuit breaker is open, or too many calls are pending.
    Refused(StoreError),
    /// The connection is lost. It is unknown whether the script ran.
    Lost(StoreError),
    /// Any other error.
    Other(StoreError),
}

impl Trouble {
    pub(crate) fn of(error: &RedisError) -> Self {
        let to = || error.redirect_node().map_or_else(String::new, |(address, _)| address.to_owned());
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => Self::Moved(to()),
            ErrorKind::Server(ServerErrorKind::Ask) => Self::Ask(to()),
            ErrorKind::Server(ServerErrorKind::NoScript) => Self::NoScript,
            ErrorKind::Server(ServerErrorKind::TryAgain) => Self::TryAgain,
            ErrorKind::Server(ServerErrorKind::ReadOnly) => Self::Demoted,
            ErrorKind::Io | ErrorKind::Parse => Self::Lost(StoreError::unavailable(error)),
            _ => Self::Other(store_error(error)),
        }
    }

    /// Returns whether the node is healthy and only redirects. That is no failure of the node, whatever the call's
    /// outcome.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Moved(_) | Self::Ask(_) | Self::NoScript | Self::TryAgain)
    }

    /// Returns whether the call certainly had no effect.
    pub(crate) fn is_not_run(&self) -> bool {
        self.is_answer() || matches!(self, Self::Demoted | Self::Refused(_))
    }

    /// For errors while connecting: maps everything except a redirection to a lost connection.
    pub(crate) fn or_lost(self) -> Self {
        match self {
            Self::Other(error) => Self::Lost(error),
            other => other,
        }
    }

    /// Converts to the error for a caller when nothing more is tried.
    pub(crate) fn into_store_error(self) -> StoreError {
        match self {
            Self::Moved(to) => {
                StoreError::unavailable(format_args!("resharding in progress: slots are moving to {to}"))
            }
            Self::Ask(to) => {
                StoreError::unavailable(format_args!("resharding in progress: the slot is moving to {to}"))
            }
            Self::NoScript => StoreError::unavailable("the script cache is flushed repeatedly"),
            Self::TryAgain => {
                StoreError::unavailable("resharding in progress: not all keys of the call have moved")
            }
            Self::Demoted => {
                StoreError::unavailable("the node became a replica; looking for the new primary")
            }
            Self::Refused(error) | Self::Lost(error) | Self::Other(error) => error,
        }
    }
}

pub(crate) fn store_error(error: &RedisError) -> StoreError {
    let detail = error.detail().unwrap_or_default();
    match error.code() {
        Some("WRONGTYPE") => StoreError::bad_state(detail),
        Some("NOPERM") => {
            StoreError::misconfigured(format_args!("permission denied: {detail}; grant it by ACL"))
        }
        Some("NOAUTH" | "WRONGPASS") => StoreError::misconfigured(format_args!(
            "authentication failed: {detail}; check user and password"
        )),
        Some("CROSSSLOT") => {
            StoreError::misconfigured(format_args!("keys of one call are in different slots: {detail}"))
        }
        Some("OOM") => StoreError::unavailable(
            "out of memory, writes are rejected; add memory or reduce the number of keys",
        ),
        _ if detail.contains("TKNOID") || error.to_string().contains("TKNOID") => StoreError::misconfigured(
            "the server does not report its replication id, so nothing can be fenced; connect without a \
             proxy",
        ),
        _ => match bad_key(&error.to_string()) {
            Some(key) => StoreError::bad_state(key),
            // Inside a script, an out-of-memory or permission error is a plain error with its code.
            None if detail.contains("OOM command") => {
                StoreError::unavailable("out of memory, writes are rejected")
            }
            None if matches!(
                error.kind(),
                ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig
            ) =>
            {
                StoreError::misconfigured(error)
            }
            None if ["user executing the script", "ACL failure", "NOPERM"]
                .iter()
                .any(|s| detail.contains(s)) =>
            {
                StoreError::misconfigured(format_args!("permission denied: {detail}"))
            }
            None => StoreError::unavailable(error),
        },
    }
}

/// Extracts the key that, according to a script, holds a foreign value.
fn bad_key(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("TKBAD ")?;
    rest.split([' ', '"']).next()
}
