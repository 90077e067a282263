//! One call over all axes: one answer, one axis to blame, one permit to settle.
//!
//! [`Policy`] is for axes that are all in this process; asking it is a plain call. `SharedPolicy` (feature `store`) takes
//! each axis from this process or from a store, and is async. Both ask concurrency, price, rate, cost and fairness in this
//! order, name the first that denies, charge all or nothing, and give out a permit that counts what is used and settles
//! every axis once. The guide is
//! [docs/admission.md](https://github.com/throttlekit/throttlekit/blob/main/docs/admission.md).

mod answer;
mod axis;
mod builder;
mod call;
mod event;
mod fairness;
mod local;
mod meter;
mod permit;
mod policy;
#[cfg(feature = "store")]
mod shared;
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

/// The guide's code, run as doc tests.
#[cfg(all(doctest, feature = "store"))]
#[doc = include_str!("../../../../docs/admission.md")]
struct Guide;
