//! Limits on calls to others: pace your own calls, and learn the provider's limits from its responses.
//!
//! * [`Outbound`] is one object per provider, with limits on requests, tokens and concurrency for each key, in process or
//!   over a store. Calls wait their turn. [`Outbound::pick`] chooses among several API keys or deployments.
//! * [`OutboundLayer`] is the same as a tower layer for clients.
//! * [`Reported`] reads the limits in a response.
//!
//! Responses only delay calls: none can raise a limit above the ceiling, or stop calls for longer than
//! [`max_pause`](OutboundBuilder::max_pause), whatever it contains (guarantee `learned-ceiling`).
//!
//! # Processes that share an account
//!
//! Over a store, all processes count against one ceiling, and keep together the limits that responses have lowered. If a
//! refusal states its delay, all of them pause: a process notices the pause of another within 100 ms, and before its first
//! call after that time.

mod body;
mod builder;
mod ceiling;
mod credit;
mod handle;
mod keyed;
mod layer;
mod layer_builder;
#[cfg(all(test, not(loom)))]
mod layer_tests;
mod learned;
mod lowered;
mod outbound_error;
mod pauses;
mod permit;
mod pick;
mod reported;
mod retry;
mod service;
pub(crate) mod sse;
mod stats;
#[cfg(all(test, not(loom)))]
mod tests;
mod upstream;
mod usage;

pub use body::OutboundBody;
pub use builder::OutboundBuilder;
pub use handle::Outbound;
pub use layer::{EstimatedTokens, OutboundLayer};
pub use layer_builder::OutboundLayerBuilder;
pub use outbound_error::OutboundError;
pub use permit::OutboundPermit;
pub use reported::{Quota, Reported};
pub use service::OutboundService;
pub use stats::{KeyLimits, OutboundStats};
pub use usage::Usage;
