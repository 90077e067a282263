//! One call over all axes: one decision, one denying axis, one permit to settle.
//!
//! [`Policy`] is for axes that are all in this process; it is synchronous. `SharedPolicy` (feature `store`) is the same
//! over a store, and is async. Both evaluate concurrency, price, rate, cost and fairness in this order, name the first
//! that denies, charge all or nothing, and return a permit that counts use and settles every axis once. The guide is
//! [docs/guides/policies.md](https://github.com/throttlekit/throttlekit/blob/main/docs/guides/policies.md).

mod admit;
mod builder;
mod fairness;
mod handle;
mod local;
mod meter;
mod names;
mod permit;
#[cfg(feature = "store")]
mod shared;
mod slots;
mod token_limit;

use crate::admit::Axis;
pub use crate::admit::{Admission, Axes, Dimension, SharedPermit};
use crate::call::Call;
pub use crate::fence::Fenced;
pub use builder::PolicyBuilder;
pub use handle::Policy;
pub use permit::Permit;
#[cfg(feature = "store")]
pub use shared::{SharedPolicy, SharedPolicyBuilder, SharedPolicyStats};
pub use token_limit::TokenLimit;
