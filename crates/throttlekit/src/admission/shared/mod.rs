//! One call over axes of which some are shared with other processes.

mod admit;
mod builder;
mod local_step;
mod permit;
mod policy;
mod settler;
mod slots;
mod spend_step;
mod step;
mod store_step;

pub use builder::SharedPolicyBuilder;
pub use policy::SharedPolicy;
pub use settler::SettleStats;
pub use slots::Slots;
