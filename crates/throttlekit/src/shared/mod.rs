//! Limits that a fleet shares.

mod guarantee;
mod limiter;
mod outage;
mod receipt;

pub(crate) use guarantee::Tallies;
pub use guarantee::{Guarantee, Tally};
pub use limiter::SharedLimiter;
pub use outage::OnOutage;
pub(crate) use outage::StandIn;
pub use receipt::{Answer, Receipt};
