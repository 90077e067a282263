//! One call over all axes: one answer, one axis to blame, one permit to settle.

mod answer;
mod axis;
mod builder;
mod call;
mod event;
mod local;
mod meter;
mod permit;
mod policy;
#[cfg(feature = "store")]
mod shared;
mod sharing;
mod slots;

pub use answer::Admission;
pub use axis::{Axes, Axis, Dimension};
pub use builder::{PolicyBuilder, Suiting};
pub use call::Call;
pub use event::{Event, Observer};
pub use permit::Permit;
pub use policy::Policy;
#[cfg(feature = "store")]
pub use shared::{Fenced, SettleStats, SharedPermit, SharedPolicy, SharedPolicyBuilder, Slots};
pub use slots::LocalSlots;
