//! The concurrency limiter over a store.

mod admit;
mod builder;
mod divided_builder;
mod handle;
mod permit;
mod stats;

pub use builder::SharedGuardBuilder;
pub use divided_builder::DividedGuardBuilder;
pub use handle::SharedGuard;
pub use permit::SharedGuardPermit;
pub use stats::SharedGuardStats;
