//! Classification of server errors.

use std::time::Duration;

use throttlekit::store::StoreError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// Raised by our functions for a row that they cannot have written.
const BAD_STATE: &str = "TK001";

/// Error of a call, and whether the server reported it and rolled back.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: StoreError,
    /// Set if the server responded and nothing of the call was written. Not set after our own timeout or a lost
    /// connection: then the outcome is unknown.
    pub(crate) undone: bool,
}

impl Failure {
    pub(crate) fn by_server(error: &Error, deadline: Duration) -> Self {
        let undone =
            matches!(error.code().map(SqlState::code), Some("55P03" | "57014" | BAD_STATE | "22003"));
        Self { error: from_server(error, deadline), undone }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self { error, undone: false }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// Returns whether the call was rolled back because of a conflict, so that it may be retried immediately.
pub(crate) fn was_undone(error: &Error) -> bool {
    matches!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
}

/// Returns whether the session is on a server that has become a standby, so that it cannot be used any more.
pub(crate) fn cannot_write(error: &Error) -> bool {
    error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

pub(crate) fn from_server(error: &Error, deadline: Duration) -> StoreError {
    let Some(db) = error.as_db_error() else { return without_word(error) };
    let (code, says) = (db.code(), db.message());
    match code.code() {
        BAD_STATE | "22003" => StoreError::bad_state(says),
        "57014" | "55P03" => StoreError::Deadline(deadline),
        "3F000" | "42883" | "42P01" => StoreError::misconfigured(format_args!(
            "{says}; create or upgrade the schema once with PostgresStoreBuilder::migrate, as a role that \
             may create it"
        )),
        "42501" => StoreError::misconfigured(format_args!(
            "{says}; grant the role the privileges that docs/operate/postgres.md lists"
        )),
        "3D000" => StoreError::misconfigured(format_args!("{says}; create it, or correct the address")),
        other if other.starts_with("28") => {
            StoreError::misconfigured(format_args!("{says}; correct the user or password in the address"))
        }
        // Syntax, types, columns: not our schema.
        other if other.starts_with("42") => StoreError::misconfigured(says),
        other => StoreError::unavailable(format_args!("{says} ({other})")),
    }
}

/// Converts an error without a server response: the connection failed, was refused, or was never opened. The client
/// shows which only in its message.
fn without_word(error: &Error) -> StoreError {
    let cause = std::error::Error::source(error);
    let why = cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
    if why.starts_with("invalid configuration") || why.starts_with("authentication error") {
        return StoreError::misconfigured(why);
    }
    StoreError::unavailable(why)
}
