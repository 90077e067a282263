//! The choices a fair limiter is made of.

use std::marker::PhantomData;

use throttlekit_core::fair::{MEMBERS_MAX, Weight};

use super::limiter::WeightOf;
use super::{FairLimiter, FairRule};
use crate::builder::KEYS_MAX_DEFAULT;
use crate::{Clock, KeyHash, SecretHash, SystemClock, WallClock};

/// What a [`FairLimiter`] is made of.
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
    /// How much each tenant weighs. Asked at every ask, so that a new weight counts from a tenant's next ask on. All
    /// weigh the same unless stated.
    pub fn weights(self, weight_of: impl Fn(&[u8]) -> Weight + Send + Sync + 'static) -> Self {
        Self { weight_of: Box::new(weight_of), ..self }
    }

    /// How many tenants of one window are kept apart. A tenant that comes when there are as many takes the place, and
    /// the use, of the one that has used least; so no tenant ever gets a fresh budget.
    pub fn tenants_max(self, tenants: usize) -> Self {
        Self { tenants_max: tenants.clamp(1, MEMBERS_MAX), ..self }
    }

    /// Which clock to read, instead of civil time.
    pub fn clock<D: Clock>(self, clock: D) -> FairBuilder<D, H> {
        let Self { rule, weight_of, tenants_max, .. } = self;
        FairBuilder { rule, weight_of, tenants_max, clock, hash: PhantomData }
    }

    /// How names are hashed: [`SecretHash`] unless the operator chooses the names.
    pub fn hash<G: KeyHash>(self) -> FairBuilder<C, G> {
        let Self { rule, weight_of, tenants_max, clock, .. } = self;
        FairBuilder { rule, weight_of, tenants_max, clock, hash: PhantomData }
    }

    /// The limiter.
    pub fn build(self) -> FairLimiter<C, H> {
        FairLimiter::from_parts(self.rule, self.weight_of, self.tenants_max, self.clock, H::random())
    }
}

debug_fields!([C, H] FairBuilder<C, H>, |it| tenants_max = it.tenants_max);
