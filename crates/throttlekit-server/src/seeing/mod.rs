//! What a server shows of itself: metrics, the monitor's snapshots, denials as they happen, logs and traces.
//!
//! A [`Hub`] is told of every decision and costs it little: counters are raised at once, and all else is done on the
//! telemetry's own thread. Nothing here decides anything. Everything kept has a bound, whatever keys and policies
//! strangers name; keys are shown by the monitor alone, and never become labels.

mod denials;
mod doors;
mod hub;
mod json;
mod latency;
mod logs;
mod metrics;
#[cfg(feature = "otlp")]
pub mod otlp;
mod outage;
mod pages;
mod shares;
mod shown;
mod snapshot;
mod utc;
mod watch;

pub use crate::share::{Load, PrincipalSeen};
pub use denials::Denial;
pub use doors::DoorsSeen;
pub use hub::{Hub, HubOptions};
pub use latency::{Scale, Summary};
pub use logs::{LogFormat, flush_logs, logs};
pub use metrics::{METRICS_CONTENT_TYPE, metrics};
pub use outage::mind_store;
pub use pages::Pages;
pub use snapshot::snapshot;
pub(crate) use watch::WATCHERS_MAX;
pub use watch::{TooManyWatchers, Watch};
