//! The fairness axis of a policy, kept across changes of its weights.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use throttlekit::admission::SharedPolicyBuilder;
use throttlekit::fair::{Quanta, Region, SharedFairLimiterBuilder, TenantShare, Weight};
use throttlekit::store::StoreError;
use throttlekit::{Answer, Limit, LimitError, OnOutage, SharedFairLimiter};

use super::backend::Counted;
use crate::policy::FairSpec;

/// Weights of tenants, from the current file.
type Weights = ArcSwap<HashMap<Box<[u8]>, Weight>>;

/// A budget that all keys of a policy share by weight.
#[derive(Clone)]
pub(super) struct Fairness {
    limiter: Limiter,
    weights: Arc<Weights>,
}

#[derive(Clone)]
enum Limiter {
    Quanta(Arc<SharedFairLimiter<Quanta<Counted>>>),
    Region(Arc<SharedFairLimiter<Region<Counted>>>),
}

impl Fairness {
    pub(super) fn new(
        spec: &FairSpec,
        policy: &str,
        region: &str,
        store: &Counted,
        on_outage: OnOutage,
    ) -> Result<Self, LimitError> {
        let limit = Limit::fixed_window(spec.limit, spec.per.0)?;
        let weights: Arc<Weights> = Arc::new(ArcSwap::from_pointee(weights(spec)));
        let limiter = if spec.regions {
            let builder = SharedFairLimiter::in_region(store.clone(), policy, region, limit);
            Limiter::Region(Arc::new(described(builder, spec, &weights, on_outage).build()?))
        } else {
            let builder = SharedFairLimiter::by_quanta(store.clone(), policy, limit);
            Limiter::Quanta(Arc::new(described(builder, spec, &weights, on_outage).build()?))
        };
        Ok(Self { limiter, weights })
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

    pub(super) async fn check(&self, ask: throttlekit::Call<'_>) -> Result<Answer, StoreError> {
        match &self.limiter {
            Limiter::Quanta(limiter) => limiter.check(ask).await,
            Limiter::Region(limiter) => limiter.check(ask).await,
        }
    }

    pub(super) fn share_of(&self, tenant: &[u8]) -> Option<TenantShare> {
        match &self.limiter {
            Limiter::Quanta(limiter) => limiter.share_of(tenant),
            Limiter::Region(limiter) => limiter.share_of(tenant),
        }
    }

    /// Adds it to a policy of several axes.
    pub(super) fn join(&self, builder: SharedPolicyBuilder) -> SharedPolicyBuilder {
        match &self.limiter {
            Limiter::Quanta(limiter) => builder.fair(limiter.clone()),
            Limiter::Region(limiter) => builder.fair(limiter.clone()),
        }
    }
}

fn described<B: throttlekit::fair::Budget>(
    builder: SharedFairLimiterBuilder<B>,
    spec: &FairSpec,
    weights: &Arc<Weights>,
    on_outage: OnOutage,
) -> SharedFairLimiterBuilder<B> {
    let weights = weights.clone();
    let builder =
        builder.weights(move |key| weights.load().get(key).copied().unwrap_or_default()).on_outage(on_outage);
    match spec.tenants_max {
        Some(tenants) => builder.tenants_max(tenants),
        None => builder,
    }
}

fn weights(spec: &FairSpec) -> HashMap<Box<[u8]>, Weight> {
    let each = spec.weights.iter();
    each.map(|(key, weight)| (key.as_bytes().into(), Weight::new((*weight).into()).unwrap_or_default()))
        .collect()
}
