//! One call over all axes: one decision, one denying axis, one permit to settle.
//!
//! [`Policy`] is for axes that are all in this process; it is synchronous. `SharedPolicy` (feature `store`) takes each
//! axis from this process or from a store, and is async. Both evaluate concurrency, price, rate, cost and fairness in
//! this order, name the first that denies, charge all or nothing, and return a permit that counts use and settles every
//! axis once. The guide is [docs/admission.md](https://github.com/throttlekit/throttlekit/blob/main/docs/admission.md).

mod admit;
mod builder;
mod fairness;
mod local;
mod meter;
mod permit;
mod policy;
#[cfg(feature = "store")]
mod shared;
mod slots;

pub use crate::admit::{Admission, Axes, Axis, Dimension, Event, Observer, SharedPermit};
pub use crate::call::Call;
pub use crate::fence::Fenced;
pub use builder::{PolicyBuilder, Suiting};
pub use permit::Permit;
pub use policy::Policy;
#[cfg(feature = "store")]
pub use shared::{SettleStats, SharedPolicy, SharedPolicyBuilder, Slots};
pub use slots::LocalSlots;

/// The guide's code, run as doc tests.
#[cfg(all(doctest, feature = "store"))]
#[doc = include_str!("../../../../docs/admission.md")]
struct Guide;
