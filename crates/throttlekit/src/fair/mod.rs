//! One budget, many tenants, each by its weight.
//!
//! [`FairLimiter`] holds a rule and maps names to its members. [`Escrow`] is the rule for nearly all cases: no tenant
//! can take units reserved for another, and nothing is left over while a tenant wants it. [`FairShare`] is a plain cap
//! per tenant. [`FairTree`] holds a budget under nested weights. [`weighted_max_min`] divides once among known demands.
//!
//! `SharedFairLimiter` (feature `store`) shares one budget among tenants of several regions or processes.
//!
//! For what each guarantees, see `fair-1` to `fair-4` in the
//! [guarantees](https://github.com/throttlekit/throttlekit/blob/main/docs/guarantees.md).

mod builder;
mod limiter;
mod names;
mod rule;
#[cfg(feature = "store")]
mod shared;
mod tenants;
mod tree;

/// Default maximum number of separate tenants, or names of a tree.
const KEYS_MAX_DEFAULT: usize = 1 << 16;

pub use builder::FairBuilder;
pub use limiter::{FairLimiter, FairStats};
pub use rule::FairRule;
#[cfg(feature = "store")]
pub use shared::{
    Budget, Quanta, Region, SharedFairLimiter, SharedFairLimiterBuilder, SharedFairStats, TenantShare,
};
pub use throttlekit_core::fair::{
    DEPTH_MAX, Escrow, FairShare, GiveBack, Tree, TreeDecision, Weight, WeightError, guarantee,
    weighted_max_min,
};
pub use tree::FairTree;
