//! Builder of a fair limiter.

use throttlekit_core::fair::Weight;
use throttlekit_core::rate::Budget;

use super::limiter::{Shares, WeightOf};
use super::tree::PathWeightOf;
use super::{FairLimiter, FairRule, TENANTS_MAX_DEFAULT};
use crate::BuildError;
use crate::clock::{Clock, SystemClock, WallClock};

/// Builder of a [`FairLimiter`].
pub struct FairLimiterBuilder<C = SystemClock> {
    budget: Budget,
    rule: FairRule,
    weights: Weights,
    tenants_max: usize,
    clock: C,
}

enum Weights {
    Flat(WeightOf),
    Nested(PathWeightOf),
}

impl FairLimiterBuilder {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            budget,
            rule: FairRule::default(),
            weights: Weights::Flat(Box::new(|_| Weight::ONE)),
            tenants_max: TENANTS_MAX_DEFAULT,
            clock: SystemClock::Wall(WallClock),
        }
    }
}

impl<C: Clock> FairLimiterBuilder<C> {
    /// Sets the weight of each tenant, from 1 to 2³⁴; other values are clamped. Called for every request, so a new
    /// weight applies from a tenant's next request on. Default: 1.
    pub fn weights(self, weight_of: impl Fn(&[u8]) -> u64 + Send + Sync + 'static) -> Self {
        Self { weights: Weights::Flat(clamped(weight_of)), ..self }
    }

    /// Nests weights: the keys of a call are the path from the root to a leaf, and the closure returns the weight of a
    /// path's last name among its siblings. With `None`, a group has the summed weight of its active members, and a
    /// leaf a weight of one. Replaces [`weights`](Self::weights).
    ///
    /// Called when a name joins, under the lock of the limiter: it must be quick, and must not call this limiter or a
    /// policy that has it, which would deadlock. A new weight applies from the next window on.
    ///
    /// ```
    /// use throttlekit::{Budget, Call, FairLimiter};
    ///
    /// // Orgs weigh by contract. Below them everyone is equal, and teams weigh what their active users do.
    /// let tokens = FairLimiter::builder(Budget::per_minute(1_000))
    ///     .tree(|path| match *path {
    ///         [b"acme"] => Some(3),
    ///         [_org] => Some(1),
    ///         _ => None,
    ///     })
    ///     .build()?;
    ///
    /// let bob = Call::by("zoo").and(&["keepers", "bob"]);
    /// assert!(tokens.check(Call::by("acme").and(&["search", "ann"])).allowed);
    /// assert!(tokens.check(bob).allowed);
    /// assert!(!tokens.check(bob.cost(250)).allowed, "a quarter is the zoo's, and one unit of it is used");
    /// assert!(tokens.check(bob.cost(249)).allowed);
    /// # Ok::<(), throttlekit::BuildError>(())
    /// ```
    pub fn tree(self, weight_of: impl Fn(&[&[u8]]) -> Option<u64> + Send + Sync + 'static) -> Self {
        let weight_of = Box::new(move |path: &[&[u8]]| weight_of(path).map(Weight::clamped));
        Self { weights: Weights::Nested(weight_of), ..self }
    }

    /// Caps each tenant at its part by weight: [`FairRule::Cap`].
    pub fn without_borrowing(self) -> Self {
        self.rule(FairRule::Cap)
    }

    /// Sets the rule for tenants in one level. Default: [`FairRule::Escrow`], the only one for a
    /// [`tree`](Self::tree).
    pub fn rule(self, rule: FairRule) -> Self {
        Self { rule, ..self }
    }

    /// Sets the maximum number of separate tenants in one window. A tenant beyond it takes over the entry, and the use,
    /// of the tenant that has used least; so no tenant ever gets a fresh budget. Default: 65,536.
    ///
    /// With [`tree`](Self::tree), groups and leaves count together, and names beyond it share one entry with the other
    /// new names of their group.
    pub fn tenants_max(self, tenants: usize) -> Self {
        Self { tenants_max: tenants, ..self }
    }

    /// Sets the clock. Default: wall-clock time.
    pub fn clock<D: Clock>(self, clock: D) -> FairLimiterBuilder<D> {
        let Self { budget, rule, weights, tenants_max, .. } = self;
        FairLimiterBuilder { budget, rule, weights, tenants_max, clock }
    }

    /// Builds the limiter. Fails if the budget is invalid, or if a tree has another rule than the default.
    pub fn build(self) -> Result<FairLimiter<C>, BuildError> {
        let Self { budget, rule, weights, tenants_max, clock } = self;
        let shares = match weights {
            Weights::Flat(weight_of) => Shares::flat(rule.start(budget)?, tenants_max, weight_of),
            Weights::Nested(weight_of) if rule == FairRule::Escrow => {
                Shares::tree(budget, tenants_max, weight_of)?
            }
            Weights::Nested(_) => {
                return Err(BuildError::OutOfRange {
                    setting: "rule",
                    expected: "the default rule for a tree",
                });
            }
        };
        Ok(FairLimiter::from_parts(shares, clock))
    }
}

/// Returns the weights of a user as weights.
pub(super) fn clamped(weight_of: impl Fn(&[u8]) -> u64 + Send + Sync + 'static) -> WeightOf {
    Box::new(move |tenant: &[u8]| Weight::clamped(weight_of(tenant)))
}

debug_fields!([C] FairLimiterBuilder<C>, |it| budget = it.budget, rule = it.rule, tenants_max = it.tenants_max);
