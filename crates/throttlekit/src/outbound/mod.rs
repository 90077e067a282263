//! Limits on calls to others: pace your own calls, and learn the provider's limits from its responses.
//!
//! An [`Upstream`] is a limiter with the ceiling that you configure, and what the provider's responses taught. It is
//! [`Admit`](crate::Admit), as the limiter is. Responses only delay calls: none can raise a limit above the ceiling, or
//! stop calls for longer than [`max_pause`](LearnSettings::max_pause), whatever it contains (guarantee
//! `learned-ceiling`).
//!
//! 1. Estimate the tokens of a call, and admit it: `upstream.admit(Call::by(key).cost(estimate))`.
//! 2. Send it, and [report](Upstream::report) the response.
//! 3. Settle the tokens that it took: read them by [`UsageReader`] and settle the permit.
//!
//! [`Upstreams`] is a pool of several keys or deployments.
//!
//! # Processes that share an account
//!
//! A limiter over a store counts the calls of all processes against one ceiling. What was learned is not shared: each
//! process learns from its own responses, which report the limits and the rest of the whole account. So a process that
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
