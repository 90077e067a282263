//! Limits shared by processes through a store.

mod builder;
pub mod leasing;
mod limiter;
mod once;
mod outage;
mod receipt;
mod stats;
mod strict;
mod tally;

pub use builder::SharedLimiterBuilder;
pub use limiter::SharedLimiter;
pub(crate) use once::{Once, is_current};
pub(crate) use outage::Fallback;
pub use outage::OnOutage;
pub(crate) use receipt::Paid;
pub use receipt::{Answer, Receipt};
pub use stats::SharedLimiterStats;
pub(crate) use strict::Strict;
pub(crate) use tally::Tallies;
pub use tally::Tally;
