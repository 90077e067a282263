//! The limits of one policy that one call to the store charges as an atomic group.

use throttlekit::admit::LimitName;
use throttlekit::limiter::SharedLimiterBuilder;
use throttlekit::policy::{Dimension, SharedPolicyBuilder};
use throttlekit::rate::{ALLOW_FULL, combine};
use throttlekit::store::Store;
use throttlekit::{Axis, BuildError, Decision, Limit, OnOutage, SharedLimiter};

use super::Answered;
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
    /// Indexes of further keys that are counted in the same counts. Budgets only.
    pub(super) also: Vec<usize>,
}

impl NamedLimit {
    /// Returns the indexes of all keys that it counts by.
    pub(super) fn keys(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.by).chain(self.also.iter().copied())
    }

    fn is_budget(&self) -> bool {
        self.on == Axis::Cost.by(self.by)
    }

    fn on(&self) -> impl Iterator<Item = Dimension> {
        std::iter::once(self.on).chain(self.also.iter().map(|by| Axis::Cost.by(*by)))
    }

    fn also_by<S: Store>(&self, builder: SharedLimiterBuilder<S>) -> SharedLimiterBuilder<S> {
        self.also.iter().fold(builder, |builder, by| builder.also_by(*by))
    }
}

/// Limits on the store, and the axis of each.
#[derive(Clone)]
pub(super) struct LimitGroup {
    pub(super) limiter: SharedLimiter<Counted>,
    on: Vec<Dimension>,
    /// Number of rates, which come before the budgets.
    rates: usize,
}

impl LimitGroup {
    /// Combines the limits of a policy to an atomic group. If all count by one key, that key selects the cluster slot,
    /// unless others of the policy count by others: then all its keys live in `one_slot`.
    pub(super) fn new(
        store: Counted,
        policy: &str,
        limits: &[NamedLimit],
        one_slot: bool,
        on_outage: OnOutage,
    ) -> Result<Self, BuildError> {
        let [first, others @ ..] = limits else {
            return Err(BuildError::OutOfRange { setting: "limits", expected: "at least one on the store" });
        };
        let builder = SharedLimiter::builder(store, policy, first.limit).first_limit(first.by, &first.name);
        let builder = others.iter().fold(first.also_by(builder), |builder, limit| {
            limit.also_by(builder.limit_by(limit.by, &limit.name, limit.limit))
        });
        let builder = if one_slot { builder.one_slot() } else { builder };
        let limiter = builder.on_outage(on_outage).build()?;
        let rates = limits.iter().take_while(|limit| !limit.is_budget()).count();
        Ok(Self { limiter, on: limits.iter().flat_map(NamedLimit::on).collect(), rates })
    }

    /// Returns the response to a peek that found this in each limit. Of several that deny, the one with the longest wait
    /// is named.
    pub(super) fn seen(&self, each: &[Decision]) -> Answered {
        let decision = each.iter().copied().fold(ALLOW_FULL, combine);
        let guarantee = Store::guarantee(self.limiter.store());
        let deniers = each.iter().enumerate().filter(|(_, decision)| !decision.allowed);
        let longest = deniers.rev().max_by_key(|(_, decision)| decision.retry_after);
        let Some((place, _)) = longest else { return Answered::of(decision, guarantee, Axis::Rate) };
        let axis = if place < self.rates { Axis::Rate } else { Axis::Cost };
        Answered::of(decision, guarantee, axis)
            .by_limit(self.limiter.limit_name(place).and_then(LimitName::new))
    }

    /// Adds them to a policy with several axes.
    pub(super) fn join(&self, builder: SharedPolicyBuilder<Counted>) -> SharedPolicyBuilder<Counted> {
        builder.with(self.on.clone(), self.limiter.clone())
    }
}
