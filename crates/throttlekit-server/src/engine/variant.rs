//! What holds for one key of a policy: its limits, ready to be asked.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::admission::{Axis, SharedPolicy};
use throttlekit::store::{DebitId, StoreError};
use throttlekit::tier::{Batch, Mode};
use throttlekit::{
    Answer, Call, Clock, Decision, Forecast, Guarantee, Limit, OnOutage, Retry, SharedLimiter, TwoTier,
    WallClock,
};

use super::backend::Counted;
use super::lend::Lender;
use super::limits::{Later, Named, Together, together};
use super::sharing::Sharing;
use super::slots::Places;
use super::{Answered, Refusal};
use crate::policy::{COST_NAME, LeaseMode, LeaseSpec, PolicySpec};

/// How many keys are asked about at a time, where each is a call of its own.
const AT_ONCE_MAX: usize = 32;
/// For how long servers hold leased units of a smooth rate, unless the file says otherwise.
pub const HELD_FOR: Duration = Duration::from_millis(100);

/// The limits that hold for some keys of a policy.
pub(super) struct Variant {
    asks: Asks,
    /// Each limit on the store by itself, for looking and for debits; the budget last.
    looks: Vec<Look>,
    /// All of them, for looking at once.
    all: Option<Arc<dyn Together>>,
    has_budget: bool,
    /// By how many keys its limits count.
    keys: usize,
    /// What this instance has fetched units for.
    tier: Option<TwoTier<Counted>>,
    pub(super) lender: Option<Lender>,
}

/// What a check asks.
enum Asks {
    /// Nobody.
    Nobody,
    /// Rates, on the store.
    Rates(Arc<dyn Together>),
    /// A rate of which this instance leases units, and what an answer from them is worth.
    Leased(TwoTier<Counted>, usize, Guarantee),
    /// What all share.
    Sharing(Sharing),
    /// Nothing: it is a budget, which is debited.
    Budget,
    /// Several axes, or slots.
    Axes { policy: Box<SharedPolicy>, slots: bool },
}

struct Look {
    limiter: SharedLimiter<Counted>,
    by: usize,
}

/// What the variants of a policy have in common.
pub(super) struct Common<'a> {
    pub(super) name: &'a str,
    pub(super) store: Counted,
    pub(super) on_outage: OnOutage,
    pub(super) places: Option<&'a Places>,
    pub(super) sharing: Option<&'a Sharing>,
}

impl Variant {
    /// Lets everything pass.
    pub(super) fn unlimited() -> Self {
        Self {
            asks: Asks::Nobody,
            looks: Vec::new(),
            all: None,
            has_budget: false,
            keys: 1,
            tier: None,
            lender: None,
        }
    }

    pub(super) fn new(spec: &PolicySpec, common: &Common<'_>) -> Result<Self, String> {
        let wrong = |error: throttlekit::LimitError| error.to_string();
        let Common { name, store, on_outage, places, sharing } = common;
        // Where nothing else counts what a call costs, its rates do.
        let weighed = spec.cost.is_none() && spec.fair.is_none();
        let mut strict = Vec::new();
        let mut leased = None;
        let mut every = Vec::new();
        for (place, rate) in spec.rate.iter().enumerate() {
            let by = usize::from(rate.by);
            let on = if weighed { Axis::Rate.of(by).weighed() } else { Axis::Rate.of(by) };
            let label = rate
                .name
                .clone()
                .unwrap_or_else(|| if place == 0 { String::new() } else { place.to_string() });
            let limit = Named { name: label, limit: rate.to_limit().map_err(wrong)?, on, by };
            every.push(limit.clone());
            match &rate.lease {
                Some(lease) if leased.is_none() => leased = Some((limit, lease)),
                Some(_) => return Err("one rate of a policy is leased at the most".into()),
                None => strict.push(limit),
            }
        }
        if let Some(cost) = &spec.cost {
            let by = usize::from(cost.by);
            let limit = cost.to_limit().map_err(wrong)?;
            let budget = Named { name: COST_NAME.into(), limit, on: Axis::Cost.of(by), by };
            every.push(budget.clone());
            strict.push(budget);
        }
        let tier = leased
            .as_ref()
            .map(|(limit, lease)| leased_tier(limit, lease, common))
            .transpose()
            .map_err(wrong)?;
        let all = (!every.is_empty())
            .then(|| together(store.clone(), name, every.clone(), *on_outage).map_err(wrong))
            .transpose()?;
        let several = usize::from(!spec.rate.is_empty())
            + usize::from(spec.cost.is_some())
            + usize::from(sharing.is_some())
            + usize::from(leased.is_some() && spec.rate.len() > 1);
        let asks = match (&all, leased.as_ref().zip(tier.as_ref()), sharing) {
            _ if places.is_some() || spec.price.is_some() || several > 1 => {
                let mut builder = SharedPolicy::builder(name);
                if let Some(places) = places {
                    builder = builder.concurrency(places.axis());
                }
                if let Some(price) = &spec.price {
                    let prices = throttlekit::price::Prices::new(price.rate, price.cost, price.hold);
                    let prices = prices.map_err(|error| error.to_string())?;
                    builder = builder.price(throttlekit::Pricer::fixed(prices));
                }
                if let (Some(all), None) = (&all, &leased) {
                    builder = all.join(builder);
                } else if !strict.is_empty() {
                    builder = together(store.clone(), name, strict, *on_outage).map_err(wrong)?.join(builder);
                }
                if let Some(((limit, _), tier)) = leased.as_ref().zip(tier.as_ref()) {
                    builder = builder.leased(limit.on, tier.clone());
                }
                if let Some(sharing) = sharing {
                    builder = sharing.join(builder);
                }
                Asks::Axes { policy: Box::new(builder.build().map_err(wrong)?), slots: places.is_some() }
            }
            (_, Some(((limit, lease), tier)), _) => {
                Asks::Leased(tier.clone(), limit.by, worth(&limit.limit, lease, tier))
            }
            (_, _, Some(sharing)) => Asks::Sharing((*sharing).clone()),
            _ if spec.cost.is_some() => Asks::Budget,
            (Some(all), None, None) => Asks::Rates(all.clone()),
            (None, None, None) => {
                return Err("has no axis: give it a rate, a cost, a concurrency or a fair share".into());
            }
        };
        let lender = match (&spec.fleet, &spec.rate[..]) {
            (None, _) => None,
            (Some(fleet), [rate]) => {
                let limit = rate.to_limit().map_err(wrong)?;
                Some(Lender::new(fleet, store.clone(), name, limit, *on_outage).map_err(wrong)?)
            }
            (Some(_), _) => {
                return Err("`fleet` lends from one rate; this policy has another number of them".into());
            }
        };
        let looks = looks(&every, common).map_err(wrong)?;
        let keys = every.iter().map(|limit| limit.by + 1).max().unwrap_or(1);
        Ok(Self { asks, looks, all, has_budget: spec.cost.is_some(), keys, tier, lender })
    }

    /// What kind of thing it is, in one word.
    pub(super) fn kind(&self) -> &'static str {
        match &self.asks {
            Asks::Nobody => "unlimited",
            Asks::Rates(_) => "rate",
            Asks::Leased(..) => "leased",
            Asks::Sharing(_) => "fair",
            Asks::Budget => "budget",
            Asks::Axes { .. } => "admission",
        }
    }

    /// A limit that went by a key which was not sent would count all such calls as one.
    pub(super) fn has_keys(&self, keys: usize) -> Result<(), Refusal> {
        if keys >= self.keys {
            return Ok(());
        }
        Err(Refusal::Invalid(format!(
            "this policy counts by {} keys, and {keys} came: send the others in `keys`, with Check or Admit",
            self.keys
        )))
    }

    /// Whether everything passes.
    pub(super) fn asks_nobody(&self) -> bool {
        matches!(self.asks, Asks::Nobody)
    }

    /// Whether stores have still to be told what was given back.
    pub(super) fn is_settling(&self) -> bool {
        matches!(&self.asks, Asks::Axes { policy, .. } if policy.settlements().waiting > 0)
    }

    pub(super) async fn check(&self, keys: &[&[u8]], cost: u64) -> Result<Answered, Refusal> {
        self.has_keys(keys.len())?;
        match &self.asks {
            Asks::Nobody => Ok(Answered::free()),
            Asks::Rates(rates) => Ok(answered(&rates.check(keys, cost).await?, Axis::Rate)),
            Asks::Leased(tier, by, worth) => {
                let key = keys.get(*by).copied().unwrap_or_default();
                // Units in hand are spent without a future.
                let ask = throttlekit::Ask { key, cost };
                if let Some(decision) = tier.try_check(ask) {
                    return Ok(Answered::of(decision, *worth, Axis::Rate));
                }
                // Boxed, so that the common ways do not carry room for the long ones.
                let answer = Box::pin(tier.check(ask)).await?;
                Ok(Answered::of(answer.decision, answer.guarantee.weaker(*worth), Axis::Rate))
            }
            Asks::Sharing(sharing) => {
                let answer = Box::pin(sharing.check(throttlekit::Ask { key: keys[0], cost })).await?;
                Ok(answered(&answer, Axis::Fairness))
            }
            Asks::Budget => {
                Err(unsupported("is a token budget: send debits, which are counted after the work"))
            }
            Asks::Axes { slots: true, .. } => {
                Err(unsupported("holds a slot while work runs: use Admit, and Release when the work is done"))
            }
            Asks::Axes { policy, slots: false } => {
                let (others, key) = (&keys[1..], keys[0]);
                let admission = Box::pin(policy.admit(Call::by(key).and(others).cost(cost))).await?;
                let answer = Answered::admitted(&admission);
                if let Some(permit) = admission.permit {
                    // Nobody will settle it: what it was said to cost is what it cost.
                    permit.success();
                }
                Ok(answer)
            }
        }
    }

    /// The same for several keys, in one flight where the store has the limits.
    pub(super) async fn check_many(&self, keys: &[&[u8]], cost: u64) -> Vec<Result<Answered, Refusal>> {
        if let (Asks::Rates(rates), Ok(())) = (&self.asks, self.has_keys(1)) {
            let answers = rates.check_many(keys, cost).await.into_iter();
            return answers.map(|answer| Ok(answered(&answer?, Axis::Rate))).collect();
        }
        let mut answers = Vec::with_capacity(keys.len());
        for some in keys.chunks(AT_ONCE_MAX) {
            let asked = some.iter().map(|key| -> Later<'_, Result<Answered, Refusal>> {
                Box::pin(async move { self.check(&[key], cost).await })
            });
            answers.extend(futures_util::future::join_all(asked).await);
        }
        answers
    }

    pub(super) async fn peek(&self, keys: &[&[u8]]) -> Result<Answered, Refusal> {
        self.has_keys(keys.len())?;
        let Some(all) = &self.all else {
            return match &self.asks {
                Asks::Nobody => Ok(Answered::free()),
                Asks::Sharing(sharing) => {
                    let answer = Box::pin(sharing.check(throttlekit::Ask { key: keys[0], cost: 0 })).await?;
                    Ok(looked(&answer, Axis::Fairness))
                }
                _ => Err(unsupported("has no limit to look at: its slots are seen in the monitor")),
            };
        };
        match all.peek(keys).await {
            Ok(decision) => Ok(Answered::of(decision, Guarantee::Exact, Axis::Rate)),
            // Asked for nothing, whoever stands in says what is left.
            Err(error) if error.is_outage() => Ok(looked(&all.check(keys, 0).await?, Axis::Rate)),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn forecast(&self, keys: &[&[u8]], cost: u64) -> Result<Forecast, Refusal> {
        self.has_keys(keys.len())?;
        if self.asks_nobody() {
            let now = WallClock.now();
            return Ok(Forecast { spendable_now: u64::MAX, next_replenish_at: now, full_at: now });
        }
        let mut all: Option<Forecast> = None;
        for look in &self.looks {
            let key = keys.get(look.by).copied().unwrap_or_default();
            let forecast = match Box::pin(look.limiter.forecast(throttlekit::Ask { key, cost })).await {
                Ok(forecast) => forecast,
                Err(error) if error.is_outage() => {
                    let answer = Box::pin(look.limiter.check(throttlekit::Ask { key, cost: 0 })).await?;
                    let looked = looked(&answer, Axis::Rate).decision;
                    let wait = looked.retry_after.wait().unwrap_or_default();
                    let next = answer.now + wait;
                    Forecast {
                        spendable_now: looked.remaining,
                        next_replenish_at: next,
                        full_at: looked.reset_at,
                    }
                }
                Err(error) => return Err(error.into()),
            };
            all = Some(match all {
                None => forecast,
                // More can be spent when the limit gives way of which least is left.
                Some(all) => {
                    let full_at = all.full_at.max(forecast.full_at);
                    let scarcer = if forecast.spendable_now < all.spendable_now { forecast } else { all };
                    Forecast { full_at, ..scarcer }
                }
            });
        }
        all.ok_or_else(|| unsupported("has no limit of which the future is known"))
    }

    pub(super) async fn debit(
        &self,
        keys: &[&[u8]],
        tokens: u64,
        id: Option<DebitId>,
    ) -> Result<Answered, Refusal> {
        self.has_keys(keys.len())?;
        let budget = self.looks.last().filter(|_| self.has_budget);
        let Some(Look { limiter, by }) = budget else {
            return match &self.asks {
                Asks::Nobody => Ok(Answered::free()),
                _ => Err(unsupported("has no token budget: give it a `cost`, or use Check")),
            };
        };
        let key = keys.get(*by).copied().unwrap_or_default();
        let debited = match id {
            Some(id) => Box::pin(limiter.debit(key, tokens, id)).await,
            // Without a name nobody sends it again, so nobody has to remember it.
            None => Box::pin(limiter.check(throttlekit::Ask { key, cost: tokens })).await,
        };
        match debited {
            Ok(answer) => Ok(answered(&answer, Axis::Cost)),
            Err(StoreError::Stale(number)) => Err(Refusal::Invalid(format!(
                "debit {number} is older than one of its stream that was counted: number debits upwards, one at a time"
            ))),
            Err(error) => Err(error.into()),
        }
    }

    /// The policy that admits work, if this is one.
    pub(super) fn admits(&self) -> Result<Option<&SharedPolicy>, Refusal> {
        match &self.asks {
            Asks::Axes { policy, .. } => Ok(Some(policy)),
            Asks::Nobody => Ok(None),
            Asks::Budget => {
                Err(unsupported("is a token budget: use Debit, or give the policy slots or a rate too"))
            }
            Asks::Rates(_) | Asks::Leased(..) | Asks::Sharing(_) => {
                Err(unsupported("holds nothing while work runs: use Check, or give the policy slots"))
            }
        }
    }

    /// Hands back what was fetched and not spent.
    pub(super) async fn close(&self) {
        if let Some(tier) = &self.tier {
            // What does not arrive lapses with its window.
            let _ = tier.close().await;
        }
    }
}

fn leased_tier(
    limit: &Named,
    lease: &LeaseSpec,
    common: &Common<'_>,
) -> Result<TwoTier<Counted>, throttlekit::LimitError> {
    let mode = match lease.mode {
        LeaseMode::Auto => Mode::Auto,
        LeaseMode::Leased => Mode::Leased,
        LeaseMode::CachedDeny => Mode::CachedDeny,
    };
    let mut builder = TwoTier::builder(common.store.clone(), common.name, limit.limit)
        .mode(mode)
        .on_outage(common.on_outage);
    if let Some(batch) = lease.batch {
        builder = builder.batch(Batch::Fixed(batch));
    }
    builder.hold(lease.hold.map_or(HELD_FOR, |hold| hold.0)).build()
}

/// Units of a window die with it, so the limit holds as it is. Those of a smooth rate are beside what it refills meanwhile:
/// law `lease-rolling`.
fn worth(limit: &Limit, lease: &LeaseSpec, tier: &TwoTier<Counted>) -> Guarantee {
    let store = throttlekit::store::Store::guarantee(tier.shared().store());
    let Limit::Gcra(_) = limit else { return store };
    let hold = lease.hold.map_or(HELD_FOR, |hold| hold.0);
    let (units, period) = (u128::from(limit.units()), limit.period().as_nanos().max(1));
    let refilled = (units * hold.as_nanos()).div_ceil(period);
    store.weaker(Guarantee::Bounded(u64::try_from(refilled).unwrap_or(u64::MAX)))
}

/// Each limit by itself, under the same names as together.
fn looks(every: &[Named], common: &Common<'_>) -> Result<Vec<Look>, throttlekit::LimitError> {
    let alike = every.iter().all(|limit| limit.by == every[0].by);
    let look = |limit: &Named| {
        let named = [(limit.name.as_str(), limit.limit)];
        let limiter =
            SharedLimiter::all(common.store.clone(), common.name, named)?.on_outage(common.on_outage);
        Ok(Look { limiter: if alike { limiter.home(0) } else { limiter }, by: limit.by })
    };
    every.iter().map(look).collect()
}

fn answered(answer: &Answer, axis: Axis) -> Answered {
    Answered::of(answer.decision, answer.guarantee, axis)
}

/// An answer to an ask for nothing: allowed means that something is left.
fn looked(answer: &Answer, axis: Axis) -> Answered {
    let Decision { allowed, remaining, .. } = answer.decision;
    let some_left = remaining > 0 || answer.guarantee == Guarantee::Open;
    let decision = Decision { allowed: allowed && some_left, ..answer.decision };
    Answered::of(decision, answer.guarantee, axis)
}

fn unsupported(why: &str) -> Refusal {
    Refusal::Unsupported(format!("this policy {why}"))
}

impl Answered {
    /// What was decided, on an axis that denied if any did.
    pub(super) fn of(decision: Decision, guarantee: Guarantee, axis: Axis) -> Self {
        let binding_axis = (!decision.allowed).then_some(axis);
        Self { decision, guarantee, binding_axis, policy_denied: false, shadow_denied: false }
    }

    /// Nobody was asked.
    pub(super) fn free() -> Self {
        Self::of(throttlekit::ALLOW_FULL, Guarantee::Exact, Axis::Rate)
    }

    pub(super) fn admitted<P>(admission: &throttlekit::admission::Admission<P>) -> Self {
        Self {
            decision: admission.decision,
            guarantee: admission.guarantee,
            binding_axis: admission.binding_axis(),
            policy_denied: admission.policy_denied,
            shadow_denied: false,
        }
    }

    /// The answer of a policy that only looks: everything passes, and what would not have is marked.
    pub(super) fn shadowed(mut self) -> Self {
        if !self.decision.allowed {
            self.shadow_denied = true;
            self.decision.allowed = true;
            self.decision.retry_after = Retry::Now;
        }
        self
    }
}
