//! Builds variants from a policy file.

use std::sync::Arc;

use throttlekit::leasing::{Batch, Leasing};
use throttlekit::policy::SharedPolicyBuilder;
use throttlekit::price::{Pricer, Prices};
use throttlekit::{Admit, Axis, BuildError, OnOutage, SharedLimiter, SharedPolicy};

use super::super::backend::Counted;
use super::super::call_queue::CallQueue;
use super::super::concurrency::Concurrency;
use super::super::fairness::Fairness;
use super::super::lender::Lender;
use super::super::limit_group::{LimitGroup, NamedLimit};
use super::super::reservations::TokenBudgets;
use super::Variant;
use super::support::Support;
use crate::policy::{CostSpec, LeaseMode, LeaseSpec, PolicySpec, PriceSpec, RateSpec, WaitSpec};

/// Context that the variants of a policy share.
pub(in crate::engine) struct Common<'a> {
    pub(in crate::engine) name: &'a str,
    pub(in crate::engine) store: Counted,
    pub(in crate::engine) on_outage: OnOutage,
    pub(in crate::engine) guards: Option<&'a Concurrency>,
    pub(in crate::engine) fairness: Option<&'a Fairness>,
}

/// The limits of a policy, by where they are counted.
struct Limits {
    /// All limits; the budgets last.
    every: Vec<NamedLimit>,
    /// Limits that the store counts at every call.
    strict: Vec<NamedLimit>,
    /// The limit of which this instance leases units.
    leased: Option<Leased>,
}

struct Leased {
    limit: NamedLimit,
    limiter: SharedLimiter<Counted>,
}

impl Variant {
    pub(in crate::engine) fn new(spec: &PolicySpec, common: &Common<'_>) -> Result<Self, String> {
        let limits = Limits::of(spec, common)?;
        let all = match &limits.every[..] {
            [] => None,
            every => Some(common.group(every)?),
        };
        let decider = Decider::of(spec, common, &limits, all.as_ref())?;
        let (queue, decider) = match &spec.wait {
            Some(wait) => decider.with_queue(wait, spec, common, &limits, all.as_ref())?,
            None => (None, decider),
        };
        let Decider { limits: decides, alone, support, policy } = decider;
        Ok(Self {
            limits: decides,
            alone: alone.filter(|_| queue.is_none()),
            support,
            all,
            budgets: debited(spec, common, &limits.every)?,
            token_budgets: token_budgets(spec, &limits.every),
            keys: limits.every.iter().map(|limit| limit.by + 1).max().unwrap_or(1),
            leased: limits.leased.map(|leased| leased.limiter),
            policy,
            lender: lender(spec, common)?,
            queue,
        })
    }
}

impl Limits {
    fn of(spec: &PolicySpec, common: &Common<'_>) -> Result<Self, String> {
        let mut limits = Self { every: Vec::new(), strict: Vec::new(), leased: None };
        for (limit, lease) in rates(spec)? {
            limits.every.push(limit.clone());
            match lease {
                Some(_) if limits.leased.is_some() => {
                    return Err("at most one rate of a policy can be leased".into());
                }
                Some(spec) => {
                    let limiter = common.leased(&limit, spec).map_err(wrong)?;
                    limits.leased = Some(Leased { limit, limiter });
                }
                None => limits.strict.push(limit),
            }
        }
        let budgets = budgets(spec)?;
        limits.every.extend(budgets.iter().cloned());
        limits.strict.extend(budgets);
        Ok(limits)
    }
}

/// Returns the rates of a policy, each with its leasing options.
fn rates(spec: &PolicySpec) -> Result<Vec<(NamedLimit, Option<&LeaseSpec>)>, String> {
    // If nothing else counts the cost of a call, its rates do.
    let weighted = spec.cost.is_empty() && spec.fair.is_none();
    let named = |place: usize, rate: &RateSpec| -> Result<NamedLimit, String> {
        let by = usize::from(rate.by);
        let on = if weighted { Axis::Rate.by(by).weighted() } else { Axis::Rate.by(by) };
        let unnamed = || if place == 0 { String::new() } else { place.to_string() };
        let name = rate.name.clone().unwrap_or_else(unnamed);
        Ok(NamedLimit { name, limit: rate.to_limit().map_err(wrong)?, on, by, also: Vec::new() })
    };
    let each = spec.rate.iter().enumerate();
    each.map(|(place, rate)| Ok((named(place, rate)?, rate.lease.as_ref()))).collect()
}

fn budgets(spec: &PolicySpec) -> Result<Vec<NamedLimit>, String> {
    let budget = |cost: &CostSpec| {
        let mut keys = cost.by.iter().map(|by| usize::from(*by));
        let by = keys.next().ok_or("a budget counts by at least one key")?;
        let limit = cost.to_limit().map_err(wrong)?;
        Ok(NamedLimit { name: cost.limit_name(), limit, on: Axis::Cost.by(by), by, also: keys.collect() })
    };
    spec.cost.iter().map(budget).collect()
}

/// Creates the group of the budgets alone, under the same keys on the store as in the group of all limits.
fn debited(
    spec: &PolicySpec,
    common: &Common<'_>,
    every: &[NamedLimit],
) -> Result<Option<SharedLimiter<Counted>>, String> {
    let budgets = &every[every.len() - spec.cost.len()..];
    let Some(first) = budgets.first() else { return Ok(None) };
    let one_slot = every.iter().flat_map(NamedLimit::keys).any(|by| by != first.by);
    Ok(Some(common.group_in(budgets, one_slot)?.limiter))
}

/// Returns the numbers of the budgets.
fn token_budgets(spec: &PolicySpec, every: &[NamedLimit]) -> Option<TokenBudgets> {
    let budgets = &every[every.len() - spec.cost.len()..];
    Some(TokenBudgets::new(budgets.iter().map(|budget| budget.limit), budgets.first()?.by))
}

/// The limits of a variant as one, and the requests that they support.
struct Decider {
    limits: Arc<dyn Admit>,
    /// The limiter of all limits, if checks need nothing else.
    alone: Option<SharedLimiter<Counted>>,
    support: Support,
    policy: Option<Arc<SharedPolicy>>,
}

impl Decider {
    /// Chooses what decides: a limiter if that has all limits, or else all axes at once.
    fn of(
        spec: &PolicySpec,
        common: &Common<'_>,
        limits: &Limits,
        all: Option<&LimitGroup>,
    ) -> Result<Self, String> {
        let slots = common.guards.is_some();
        let parts = usize::from(!spec.rate.is_empty())
            + usize::from(!spec.cost.is_empty())
            + usize::from(common.fairness.is_some())
            + usize::from(limits.leased.is_some() && spec.rate.len() > 1);
        if slots || spec.price.is_some() || parts > 1 {
            return Ok(Self::of_axes(fused(spec, common, limits, all)?, slots));
        }
        if let Some(Leased { limiter, .. }) = &limits.leased {
            return Ok(Self::alone(limiter.clone(), Support::LEASED));
        }
        if spec.learn.is_some() && !spec.cost.is_empty() {
            let policy = fused(spec, common, limits, all)?;
            return Ok(Self { support: Support::LEARNED_BUDGET, ..Self::of_axes(policy, slots) });
        }
        if let Some(fairness) = common.fairness {
            return Ok(Self::alone(fairness.limiter.clone(), Support::FAIR));
        }
        let none = || "the policy has no axis: add rate, cost, concurrency or fair".to_owned();
        let support = if !spec.cost.is_empty() { Support::BUDGET } else { Support::RATE };
        let limiter = all.ok_or_else(none)?.limiter.clone();
        let alone = support.check.is_ok().then(|| limiter.clone());
        Ok(Self { alone, ..Self::alone(limiter, support) })
    }

    /// Adds the queue of calls that wait. It needs a policy, which gives back what a call was charged that left while its
    /// decision was in progress.
    fn with_queue(
        self,
        wait: &WaitSpec,
        spec: &PolicySpec,
        common: &Common<'_>,
        limits: &Limits,
        all: Option<&LimitGroup>,
    ) -> Result<(Option<CallQueue>, Self), String> {
        let policy = match self.policy {
            Some(policy) => policy,
            None => Arc::new(fused(spec, common, limits, all)?),
        };
        let counts_by_key = limits.leased.is_some() || all.is_some() || common.fairness.is_some();
        let one_for_all = !counts_by_key && common.guards.is_some_and(Concurrency::ignores_keys);
        let queue = CallQueue::new(policy.clone(), wait, one_for_all).map_err(wrong)?;
        Ok((Some(queue), Self { policy: Some(policy), support: self.support.waiting(), ..self }))
    }

    fn alone(limits: impl Admit, support: Support) -> Self {
        Self { limits: Arc::new(limits), alone: None, support, policy: None }
    }

    fn of_axes(policy: SharedPolicy, slots: bool) -> Self {
        let policy = Arc::new(policy);
        let support = if slots { Support::SLOTS } else { Support::AXES };
        Self { policy: Some(policy.clone()), ..Self::alone(policy, support) }
    }
}

/// Combines all axes of a policy.
fn fused(
    spec: &PolicySpec,
    common: &Common<'_>,
    limits: &Limits,
    all: Option<&LimitGroup>,
) -> Result<SharedPolicy, String> {
    let mut builder = SharedPolicy::builder(common.store.clone(), common.name);
    if let Some(guards) = common.guards {
        builder = guards.join(builder);
    }
    if let Some(price) = &spec.price {
        builder = priced(builder, price)?;
    }
    builder = match (&limits.leased, all) {
        (None, Some(all)) => all.join(builder),
        (Some(_), _) if !limits.strict.is_empty() => common.group(&limits.strict)?.join(builder),
        _ => builder,
    };
    if let Some(Leased { limit, limiter }) = &limits.leased {
        builder = builder.with(limit.on, limiter.clone());
    }
    if let Some(fairness) = common.fairness {
        builder = fairness.join(builder);
    }
    builder.build().map_err(|error| error.to_string())
}

fn priced(
    builder: SharedPolicyBuilder<Counted>,
    price: &PriceSpec,
) -> Result<SharedPolicyBuilder<Counted>, String> {
    let prices = Prices::new(price.rate, price.cost, price.hold).map_err(|error| error.to_string())?;
    Ok(builder.price(Pricer::fixed(prices)))
}

/// Creates the lender of units to clients, if the file enables it.
fn lender(spec: &PolicySpec, common: &Common<'_>) -> Result<Option<Lender>, String> {
    let Common { name, store, on_outage, .. } = common;
    match (&spec.fleet, &spec.rate[..]) {
        (None, _) => Ok(None),
        (Some(fleet), [rate]) => {
            let (limit, by) = (rate.to_limit().map_err(wrong)?, usize::from(rate.by));
            let lender = Lender::new(fleet, store.clone(), name, (limit, by), *on_outage);
            lender.map(Some).map_err(wrong)
        }
        (Some(_), _) => Err("`fleet` needs exactly one rate".into()),
    }
}

impl Common<'_> {
    fn group(&self, limits: &[NamedLimit]) -> Result<LimitGroup, String> {
        self.group_in(limits, false)
    }

    fn group_in(&self, limits: &[NamedLimit], one_slot: bool) -> Result<LimitGroup, String> {
        LimitGroup::new(self.store.clone(), self.name, limits, one_slot, self.on_outage).map_err(wrong)
    }

    fn leased(&self, limit: &NamedLimit, lease: &LeaseSpec) -> Result<SharedLimiter<Counted>, BuildError> {
        let mut leasing = match lease.mode {
            LeaseMode::Auto => Leasing::auto(),
            LeaseMode::Leased => Leasing::new(),
            LeaseMode::CachedDeny => Leasing::cached_denials(),
        };
        if let Some(batch) = lease.batch {
            leasing = leasing.batch(Batch::Fixed(batch));
        }
        SharedLimiter::builder(self.store.clone(), self.name, limit.limit)
            .first_limit(limit.by, "")
            .leased_with(leasing.hold(lease.hold_for()))
            .on_outage(self.on_outage)
            .build()
    }
}

fn wrong(error: impl std::fmt::Display) -> String {
    error.to_string()
}
