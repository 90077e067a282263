//! One budget, many tenants, each by its weight.
//!
//! [`FairLimiter`] maps names to the members of a rule. By default no tenant can take units reserved for another, and
//! nothing is left over while a tenant wants it; [`without_borrowing`](FairLimiterBuilder::without_borrowing) is a plain
//! cap per tenant, [`tree`](FairLimiterBuilder::tree) nests weights, and [`FairRule`] has the other rules.
//! [`weighted_max_min`] divides once among known demands. The rules themselves are in `throttlekit_core::fair`.
//!
//! `SharedFairLimiter` (feature `store`) shares one budget among tenants of several regions or processes.
//!
//! For what each guarantees, see `fair-1` to `fair-4` in the
//! [guarantees](https://github.com/throttlekit/throttlekit/blob/main/docs/reference/guarantees.md).

mod builder;
mod limiter;
mod names;
mod receipt;
mod rule;
#[cfg(feature = "store")]
mod shared;
mod tenants;
mod tree;

pub use builder::FairLimiterBuilder;
pub use limiter::{FairLimiter, FairStats};
pub use receipt::FairReceipt;
pub(crate) use receipt::Portion;
pub use rule::FairRule;
#[cfg(feature = "store")]
pub use shared::{SharedFairLimiter, SharedFairLimiterBuilder, SharedFairStats, TenantShare};
pub use throttlekit_core::fair::{GiveBack, Weight, weighted_max_min};

/// Default for the maximum number of separate tenants.
const TENANTS_MAX_DEFAULT: usize = 1 << 16;
