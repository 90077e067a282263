//! The telemetry of a server: metrics, snapshots for the monitor, streams of denials, logs and traces.
//!
//! [`ServerTelemetry`] observes every decision at little cost: it increments counters immediately, and does everything
//! else on the telemetry's own thread. Nothing here decides anything. Everything stored is bounded, whatever keys and
//! policies clients name. Only the monitor shows keys; they never become labels.

mod denials;
mod fair_shares;
mod json;
mod key_display;
mod latency;
mod logs;
mod metrics;
#[cfg(feature = "otlp")]
pub mod otlp;
mod pages;
mod server_stats;
mod server_telemetry;
mod snapshot;
#[cfg(feature = "otlp")]
mod spans;
mod store_watch;
mod traces;
mod utc;
mod watch;

pub use crate::share::{Load, PrincipalSeen, TooManyWatchers};
pub use denials::Denial;
pub use latency::{Scale, Summary};
pub use logs::{LogFormat, flush_logs, logs, set_log_filter};
pub use metrics::{METRICS_CONTENT_TYPE, metrics};
pub use pages::Pages;
pub use server_stats::{EnvoyRuleStats, EnvoyStats, ServerStats};
pub use server_telemetry::{ServerTelemetry, TelemetryOptions};
pub use snapshot::snapshot;
pub use store_watch::watch_store;
pub(crate) use traces::Traces;
pub use watch::Watch;
