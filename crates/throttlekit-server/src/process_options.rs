//! Options of the program that runs a server.

use std::time::Duration;

use crate::store_options::StoreOptions;
use crate::store_url::StoreUrl;

/// Options of the program that runs a server. The server does not use them: operators read them with its configuration,
/// without passwords.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ProcessOptions {
    /// The store and the options for connecting to it.
    pub store: Option<(StoreUrl, StoreOptions)>,
    /// Maximum memory for keys, in bytes, if counts are kept in this process.
    pub memory_budget_bytes: Option<usize>,
    /// Time for which the server keeps serving after SIGTERM while it reports not ready.
    pub lame_duck: Duration,
    /// Log filter at the start.
    pub log: String,
    /// Set if the log is in JSON.
    pub log_json: bool,
}
