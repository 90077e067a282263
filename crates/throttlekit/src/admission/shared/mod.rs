//! One call over axes of which some are shared with other processes.

mod builder;
mod keeper;
mod local_step;
mod permit;
mod policy;
mod slots;
mod spend_step;
mod step;
mod store_step;

pub use builder::SharedPolicyBuilder;
pub use keeper::SettleStats;
pub use permit::SharedPermit;
pub use policy::SharedPolicy;
pub use slots::Slots;
