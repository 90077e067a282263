//! The limits of one policy that one call to the store charges as an atomic group.

use throttlekit::policy::{Dimension, SharedPolicyBuilder};
use throttlekit::{BuildError, Limit, OnOutage, SharedLimiter};

use super::backend::Counted;

/// One limit of a policy.
#[derive(Clone, Debug)]
pub(super) struct NamedLimit {
    /// Name that distinguishes it within the policy. Empty for the one that needs no name.
    pub(super) name: String,
    pub(super) limit: Limit,
    /// Axis, and which of the call's keys it counts by.
    pub(super) on: Dimension,
    /// Index of that key.
    pub(super) by: usize,
}

/// Limits on the store, and the axis of each.
#[derive(Clone)]
pub(super) struct LimitGroup {
    pub(super) limiter: SharedLimiter<Counted>,
    on: Vec<Dimension>,
}

impl LimitGroup {
    /// Combines the limits of a policy to an atomic group. If all count by one key, that key selects the cluster slot.
    pub(super) fn new(
        store: Counted,
        policy: &str,
        limits: &[NamedLimit],
        on_outage: OnOutage,
    ) -> Result<Self, BuildError> {
        let [first, others @ ..] = limits else {
            return Err(BuildError::OutOfRange { setting: "limits", expected: "at least one on the store" });
        };
        let builder = SharedLimiter::builder(store, policy, first.limit).first_limit(first.by, &first.name);
        let builder = others
            .iter()
            .fold(builder, |builder, limit| builder.limit_by(limit.by, &limit.name, limit.limit));
        let limiter = builder.on_outage(on_outage).build()?;
        Ok(Self { limiter, on: limits.iter().map(|limit| limit.on).collect() })
    }

    /// Adds them to a policy with several axes.
    pub(super) fn join(&self, builder: SharedPolicyBuilder<Counted>) -> SharedPolicyBuilder<Counted> {
        builder.with(self.on.clone(), self.limiter.clone())
    }
}
