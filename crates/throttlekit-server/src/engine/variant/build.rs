//! Builds variants from a policy file.

use std::sync::Arc;

use throttlekit::admission::{Axis, SharedPolicy, SharedPolicyBuilder};
use throttlekit::price::Prices;
use throttlekit::store::Store;
use throttlekit::tier::{Batch, Mode};
use throttlekit::{Guarantee, Limit, LimitError, OnOutage, Pricer, SharedLimiter, TwoTier};

use super::super::backend::Counted;
use super::super::concurrency::Concurrency;
use super::super::fairness::Fairness;
use super::super::lender::Lender;
use super::super::limit_group::{LimitGroup, NamedLimit, group};
use super::{Asks, Look, Variant};
use crate::policy::{COST_NAME, LeaseMode, LeaseSpec, PolicySpec, PriceSpec, RateSpec};

/// Context that the variants of a policy share.
pub(in crate::engine) struct Common<'a> {
    pub(in crate::engine) name: &'a str,
    pub(in crate::engine) store: Counted,
    pub(in crate::engine) on_outage: OnOutage,
    pub(in crate::engine) guards: Option<&'a Concurrency>,
    pub(in crate::engine) fairness: Option<&'a Fairness>,
}

/// The limits of a policy, by where they are counted.
struct Limits<'s> {
    /// All limits; the budget last.
    every: Vec<NamedLimit>,
    /// Limits that the store counts at every call.
    strict: Vec<NamedLimit>,
    /// The limit of which this instance leases units.
    leased: Option<Leased<'s>>,
}

struct Leased<'s> {
    limit: NamedLimit,
    spec: &'s LeaseSpec,
    tier: TwoTier<Counted>,
}

impl Variant {
    pub(in crate::engine) fn new(spec: &PolicySpec, common: &Common<'_>) -> Result<Self, String> {
        let limits = Limits::of(spec, common)?;
        let all = match &limits.every[..] {
            [] => None,
            every => Some(common.group(every.to_vec())?),
        };
        Ok(Self {
            asks: asks(spec, common, &limits, all.as_ref())?,
            looks: looks(&limits.every, common).map_err(wrong)?,
            all,
            has_budget: spec.cost.is_some(),
            keys: limits.every.iter().map(|limit| limit.by + 1).max().unwrap_or(1),
            lender: lender(spec, common)?,
            tier: limits.leased.map(|leased| leased.tier),
        })
    }
}

impl<'s> Limits<'s> {
    fn of(spec: &'s PolicySpec, common: &Common<'_>) -> Result<Self, String> {
        let mut limits = Self { every: Vec::new(), strict: Vec::new(), leased: None };
        for (limit, lease) in rates(spec)? {
            limits.every.push(limit.clone());
            match lease {
                Some(_) if limits.leased.is_some() => {
                    return Err("one rate of a policy is leased at the most".into());
                }
                Some(spec) => {
                    let tier = common.tier(&limit, spec).map_err(wrong)?;
                    limits.leased = Some(Leased { limit, spec, tier });
                }
                None => limits.strict.push(limit),
            }
        }
        if let Some(budget) = budget(spec)? {
            limits.every.push(budget.clone());
            limits.strict.push(budget);
        }
        Ok(limits)
    }
}

/// Returns the rates of a policy, each with its leasing options.
fn rates(spec: &PolicySpec) -> Result<Vec<(NamedLimit, Option<&LeaseSpec>)>, String> {
    // If nothing else counts the cost of a call, its rates do.
    let weighed = spec.cost.is_none() && spec.fair.is_none();
    let named = |place: usize, rate: &RateSpec| -> Result<NamedLimit, String> {
        let by = usize::from(rate.by);
        let on = if weighed { Axis::Rate.of(by).weighed() } else { Axis::Rate.of(by) };
        let unnamed = || if place == 0 { String::new() } else { place.to_string() };
        let name = rate.name.clone().unwrap_or_else(unnamed);
        Ok(NamedLimit { name, limit: rate.to_limit().map_err(wrong)?, on, by })
    };
    let each = spec.rate.iter().enumerate();
    each.map(|(place, rate)| Ok((named(place, rate)?, rate.lease.as_ref()))).collect()
}

fn budget(spec: &PolicySpec) -> Result<Option<NamedLimit>, String> {
    let Some(cost) = &spec.cost else { return Ok(None) };
    let (by, limit) = (usize::from(cost.by), cost.to_limit().map_err(wrong)?);
    Ok(Some(NamedLimit { name: COST_NAME.into(), limit, on: Axis::Cost.of(by), by }))
}

/// Chooses how a check is done: directly if there is only one limit, or else on all axes at once.
fn asks(
    spec: &PolicySpec,
    common: &Common<'_>,
    limits: &Limits<'_>,
    all: Option<&Arc<dyn LimitGroup>>,
) -> Result<Asks, String> {
    let slots = common.guards.is_some();
    let parts = usize::from(!spec.rate.is_empty())
        + usize::from(spec.cost.is_some())
        + usize::from(common.fairness.is_some())
        + usize::from(limits.leased.is_some() && spec.rate.len() > 1);
    if slots || spec.price.is_some() || parts > 1 {
        let policy = Box::new(fused(spec, common, limits, all)?);
        return Ok(Asks::Axes { policy, slots });
    }
    if let Some(Leased { limit, spec, tier }) = &limits.leased {
        return Ok(Asks::Leased(tier.clone(), limit.by, worth(&limit.limit, spec, tier)));
    }
    if let Some(fairness) = common.fairness {
        return Ok(Asks::Fairness(fairness.clone()));
    }
    if spec.cost.is_some() {
        return Ok(Asks::Budget);
    }
    let none = || "has no axis: give it a rate, a cost, a concurrency or a fair share".to_owned();
    all.cloned().map(Asks::Rates).ok_or_else(none)
}

/// Combines all axes of a policy.
fn fused(
    spec: &PolicySpec,
    common: &Common<'_>,
    limits: &Limits<'_>,
    all: Option<&Arc<dyn LimitGroup>>,
) -> Result<SharedPolicy, String> {
    let mut builder = SharedPolicy::builder(common.name);
    if let Some(guards) = common.guards {
        builder = builder.concurrency(guards.axis());
    }
    if let Some(price) = &spec.price {
        builder = priced(builder, price)?;
    }
    builder = match (&limits.leased, all) {
        (None, Some(all)) => all.join(builder),
        (Some(_), _) if !limits.strict.is_empty() => common.group(limits.strict.clone())?.join(builder),
        _ => builder,
    };
    if let Some(Leased { limit, tier, .. }) = &limits.leased {
        builder = builder.leased(limit.on, tier.clone());
    }
    if let Some(fairness) = common.fairness {
        builder = fairness.join(builder);
    }
    builder.build().map_err(wrong)
}

fn priced(builder: SharedPolicyBuilder, price: &PriceSpec) -> Result<SharedPolicyBuilder, String> {
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
        (Some(_), _) => Err("`fleet` lends from one rate; this policy has another number of them".into()),
    }
}

impl Common<'_> {
    fn group(&self, limits: Vec<NamedLimit>) -> Result<Arc<dyn LimitGroup>, String> {
        group(self.store.clone(), self.name, limits, self.on_outage).map_err(wrong)
    }

    fn tier(&self, limit: &NamedLimit, lease: &LeaseSpec) -> Result<TwoTier<Counted>, LimitError> {
        let mode = match lease.mode {
            LeaseMode::Auto => Mode::Auto,
            LeaseMode::Leased => Mode::Leased,
            LeaseMode::CachedDeny => Mode::CachedDeny,
        };
        let mut builder =
            TwoTier::builder(self.store.clone(), self.name, limit.limit).mode(mode).on_outage(self.on_outage);
        if let Some(batch) = lease.batch {
            builder = builder.batch(Batch::Fixed(batch));
        }
        builder.hold(lease.hold_for()).build()
    }
}

/// Returns the guarantee of leased units. Units of a window expire with it, so the limit holds as is. Those of a smooth
/// rate are in addition to what it refills meanwhile: guarantee `lease-rolling`.
fn worth(limit: &Limit, lease: &LeaseSpec, tier: &TwoTier<Counted>) -> Guarantee {
    let store = Store::guarantee(tier.shared().store());
    let Limit::Gcra(_) = limit else { return store };
    let hold = lease.hold_for();
    let (units, period) = (u128::from(limit.units()), limit.period().as_nanos().max(1));
    let refilled = (units * hold.as_nanos()).div_ceil(period);
    store.weaker(Guarantee::Bounded(u64::try_from(refilled).unwrap_or(u64::MAX)))
}

/// Creates a limiter for each limit, under the same names as in the group.
fn looks(every: &[NamedLimit], common: &Common<'_>) -> Result<Vec<Look>, LimitError> {
    let alike = every.iter().all(|limit| limit.by == every[0].by);
    let look = |limit: &NamedLimit| {
        let named = [(limit.name.as_str(), limit.limit)];
        let limiter =
            SharedLimiter::all(common.store.clone(), common.name, named)?.on_outage(common.on_outage);
        Ok(Look { limiter: if alike { limiter.home(0) } else { limiter }, by: limit.by })
    };
    every.iter().map(look).collect()
}

fn wrong(error: LimitError) -> String {
    error.to_string()
}
