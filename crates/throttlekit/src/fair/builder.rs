//! Builder of a fair limiter.

use std::marker::PhantomData;

use throttlekit_core::fair::{MEMBERS_MAX, Weight};

use super::limiter::WeightOf;
use super::{FairLimiter, FairRule};
use crate::fair::KEYS_MAX_DEFAULT;
use crate::{Clock, KeyHash, SecretHash, SystemClock, WallClock};

/// Builder of a [`FairLimiter`].
pub struct FairBuilder<C = SystemClock, H = SecretHash> {
    rule: FairRule,
    weight_of: WeightOf,
    tenants_max: usize,
    clock: C,
    hash: PhantomData<H>,
}

impl FairBuilder {
    pub(super) fn new(rule: FairRule) -> Self {
        Self {
            rule,
            weight_of: Box::new(|_| Weight::ONE),
            tenants_max: KEYS_MAX_DEFAULT,
            clock: SystemClock::Wall(WallClock),
            hash: PhantomData,
        }
    }
}

impl<C: Clock, H: KeyHash> FairBuilder<C, H> {
    /// Sets the weight of each tenant. Called for every request, so a new weight applies from a tenant's next request
    /// on. Default: equal weights.
    pub fn weights(self, weight_of: impl Fn(&[u8]) -> Weight + Send + Sync + 'static) -> Self {
        Self { weight_of: Box::new(weight_of), ..self }
    }

    /// Sets the maximum number of separate tenants in one window. A tenant beyond it takes over the entry, and the use,
    /// of the tenant that has used least; so no tenant ever gets a fresh budget.
    pub fn tenants_max(self, tenants: usize) -> Self {
        Self { tenants_max: tenants.clamp(1, MEMBERS_MAX), ..self }
    }

    /// Sets the clock, instead of wall-clock time.
    pub fn clock<D: Clock>(self, clock: D) -> FairBuilder<D, H> {
        let Self { rule, weight_of, tenants_max, .. } = self;
        FairBuilder { rule, weight_of, tenants_max, clock, hash: PhantomData }
    }

    /// Sets the name hash. Default: [`SecretHash`]. Use another only if the operator chooses the names.
    pub fn hash<G: KeyHash>(self) -> FairBuilder<C, G> {
        let Self { rule, weight_of, tenants_max, clock, .. } = self;
        FairBuilder { rule, weight_of, tenants_max, clock, hash: PhantomData }
    }

    /// Builds the limiter.
    pub fn build(self) -> FairLimiter<C, H> {
        FairLimiter::from_parts(self.rule, self.weight_of, self.tenants_max, self.clock, H::random())
    }
}

debug_fields!([C, H] FairBuilder<C, H>, |it| tenants_max = it.tenants_max);
