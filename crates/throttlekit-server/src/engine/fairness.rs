//! The fairness axis of a policy, kept across changes of its weights.

use std::sync::Arc;

use arc_swap::ArcSwap;
use throttlekit::fair::TenantShare;
use throttlekit::policy::SharedPolicyBuilder;
use throttlekit::{Axis, Budget, BuildError, OnOutage, SharedFairLimiter};

use super::backend::Counted;
use super::by_key::ByKey;
use crate::policy::FairSpec;

/// Weights of tenants, from the current file.
type Weights = ArcSwap<ByKey<u64>>;

/// A budget that all keys of a policy share by weight.
#[derive(Clone)]
pub(super) struct Fairness {
    pub(super) limiter: SharedFairLimiter,
    weights: Arc<Weights>,
}

impl Fairness {
    pub(super) fn new(
        spec: &FairSpec,
        policy: &str,
        region: &str,
        store: &Counted,
        on_outage: OnOutage,
    ) -> Result<Self, BuildError> {
        let weights: Arc<Weights> = Arc::new(ArcSwap::from_pointee(weights(spec)));
        let current = weights.clone();
        let budget = Budget::per(spec.limit, spec.per.0);
        let mut builder = SharedFairLimiter::builder(store.clone(), policy, budget)
            .weights(move |key| current.load().get(key).copied().unwrap_or(1))
            .on_outage(on_outage);
        if spec.regions {
            builder = builder.region(region);
        }
        if let Some(tenants) = spec.tenants_max {
            builder = builder.tenants_max(tenants);
        }
        Ok(Self { limiter: builder.build()?, weights })
    }

    /// Adapts it to a changed file. Returns `None` if more than weights changed. Those are unchanged until the file is
    /// [applied](Self::put_in_force).
    pub(super) fn kept(&self, from: &FairSpec, to: &FairSpec) -> Option<Self> {
        let only_weights = FairSpec { weights: from.weights.clone(), ..to.clone() } == *from;
        only_weights.then(|| self.clone())
    }

    /// Applies the weights of the file, which take effect at each tenant's next request.
    pub(super) fn put_in_force(&self, spec: &FairSpec) {
        self.weights.store(Arc::new(weights(spec)));
    }

    pub(super) fn share_of(&self, tenant: &[u8]) -> Option<TenantShare> {
        self.limiter.share_of(tenant)
    }

    /// Adds it to a policy of several axes.
    pub(super) fn join(&self, builder: SharedPolicyBuilder<Counted>) -> SharedPolicyBuilder<Counted> {
        builder.with(Axis::Fairness, self.limiter.clone())
    }
}

fn weights(spec: &FairSpec) -> ByKey<u64> {
    spec.weights.iter().map(|(pattern, weight)| (pattern.as_str(), (*weight).into())).collect()
}
