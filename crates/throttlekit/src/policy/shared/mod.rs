//! One call over axes of which some are shared with other processes.

mod admit;
mod builder;
mod draw;
mod group;
mod handle;
mod local_step;
mod part;
mod permit;
mod settler;
mod slots;
mod spend_step;
mod step;
mod store_step;

pub use builder::SharedPolicyBuilder;
pub use handle::SharedPolicy;
pub use settler::SharedPolicyStats;
