//! Limits on calls to others: pace your own calls, and learn the provider's limits from its responses.
//!
//! * [`OutboundLayer`] is a tower layer for clients, and [`Outbound`] the same without tower: one object per provider with
//!   limits on requests, tokens and concurrency for each key, in process or over a store. Calls wait their turn.
//! * [`Upstream`] is what they are built on: a limiter with the ceiling that you configure, and what the provider's
//!   responses taught. It is [`Admit`](crate::Admit), as the limiter is. [`Upstreams`] is a pool of several keys or
//!   deployments.
//! * [`Reported`] reads the limits in a response, [`UsageReader`] the tokens that it took. [`Learned`] has no clock and no
//!   lock.
//!
//! Responses only delay calls: none can raise a limit above the ceiling, or stop calls for longer than
//! [`max_pause`](LearnSettings::max_pause), whatever it contains (guarantee `learned-ceiling`).
//!
//! # Processes that share an account
//!
//! Over a store, all processes count against one ceiling. With an [`Outbound`], they also keep together the limits that
//! responses have lowered. Pauses after a refusal are not shared: each process learns from its own responses, so one that
//! has sent nothing since the account was exhausted sends one call that is refused.

mod body;
mod builder;
mod ceiling;
mod handle;
mod keyed;
mod layer;
mod layer_builder;
#[cfg(all(test, not(loom)))]
mod layer_tests;
mod learned;
mod lowered;
mod outbound_error;
mod permit;
mod reported;
mod retry;
mod service;
pub(crate) mod sse;
mod stats;
#[cfg(all(test, not(loom)))]
mod tests;
mod upstream;
mod upstreams;
mod usage;

pub use body::OutboundBody;
pub use builder::OutboundBuilder;
pub use handle::Outbound;
pub use layer::{EstimatedTokens, OutboundLayer};
pub use layer_builder::OutboundLayerBuilder;
pub use learned::{Headroom, LearnSettings, Learned, Sent};
pub use outbound_error::OutboundError;
pub use permit::OutboundPermit;
pub use reported::{Quota, Reported};
pub use retry::{CloneBody, NoRetries};
pub use service::OutboundService;
pub use stats::{KeyLimits, OutboundStats, WaitTimes};
pub use upstream::{Upstream, UpstreamBuilder};
pub use upstreams::{Upstreams, pick};
pub use usage::{Usage, UsageReader};
