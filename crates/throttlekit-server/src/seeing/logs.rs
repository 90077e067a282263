//! Logs: one line each to standard error, as text or as JSON.

use std::io::IsTerminal;

use throttlekit::admission::Event;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// How lines of the log look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// Sends the log of this process to standard error, what the filter lets through: `info`, or `warn,throttlekit=debug`.
///
/// # Errors
///
/// If the filter cannot be read, or the log was sent somewhere already.
pub fn logs(format: LogFormat, filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("log filter `{filter}`: {error}"))?;
    let registry = tracing_subscriber::registry().with(filter);
    let lines = fmt::layer().with_writer(std::io::stderr);
    let set = match format {
        LogFormat::Text => registry.with(lines.with_ansi(std::io::stderr().is_terminal())).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    set.map_err(|error| error.to_string())
}

/// Logs a denial. Its key is left out: it may be a person's name or address.
pub(super) fn denied(event: &Event<'_>) {
    if event.decision.allowed {
        return;
    }
    tracing::debug!(
        policy = event.policy,
        axis = event.binding_axis.map(throttlekit::Axis::label),
        policy_denied = event.policy_denied,
        cost = event.cost,
        limit = event.decision.limit,
        remaining = event.decision.remaining,
        retry_after_ms = event.decision.retry_after.wait_ms(),
        guarantee = event.guarantee.label(),
        "denied"
    );
}
