//! Limits that a fleet shares.

mod guarantee;
mod limiter;
mod outage;
mod receipt;

pub use guarantee::{Guarantee, Tally};
pub use limiter::SharedLimiter;
pub use outage::OnOutage;
pub use receipt::{Answer, Receipt};
