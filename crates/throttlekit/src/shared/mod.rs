//! Limits shared by processes through a store.

mod limiter;
mod outage;
mod receipt;
mod tally;

pub use limiter::SharedLimiter;
pub(crate) use outage::Fallback;
pub use outage::OnOutage;
pub(crate) use receipt::Paid;
pub use receipt::{Answer, Receipt};
pub(crate) use tally::Tallies;
pub use tally::Tally;
