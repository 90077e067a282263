//! One running policy: its file's description, and the state that survives changes of the file.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::fair::TenantShare;
use throttlekit::store::StoreError;
use throttlekit::{Call, OnOutage};

use super::backend::{Backend, Counted};
use super::by_key::ByKey;
use super::concurrency::{Concurrency, GuardView};
use super::failures::Failures;
use super::fairness::Fairness;
use super::overrides::{Limits, Live};
use super::own_limits::{OwnLimit, OwnLimits};
use super::reservations::{Reservations, Wanted};
use super::variant::{Common, Variant};
use super::{Answered, PolicyCall, Refusal, WorkTerms};
use crate::policy::{
    ConcurrencySpec, Defaults, LEASE_FOR, OutageSpec, OverrideSpec, Period, PolicySpec, RateSpec, Scope, Span,
};
use crate::server_error::ServerError;

/// One running policy. Cheap to clone, except for overrides.
#[derive(Clone)]
pub(super) struct RunningPolicy {
    pub(super) name: Arc<str>,
    pub(super) spec: PolicySpec,
    on_outage: OnOutage,
    calls: Arc<AtomicU64>,
    /// True if the store is this process.
    in_memory: bool,
    guards: Option<Concurrency>,
    fairness: Option<Fairness>,
    base: Arc<Variant>,
    overrides: ByKey<Arc<Variant>>,
    /// Overrides that operators set while servers run.
    pub(super) live: Live,
    store: Counted,
    own_limits: OwnLimits,
    /// Reservations of calls without a cost, if they are learned.
    reservations: Option<Arc<Reservations>>,
}

/// The store and defaults that all policies share.
pub(super) struct PolicyContext<'a> {
    pub(super) backend: &'a Backend,
    pub(super) region: &'a str,
    pub(super) defaults: &'a Defaults,
    pub(super) failures: &'a Arc<Failures>,
}

impl RunningPolicy {
    /// Creates the policy of a file, and keeps what it can of the previous one. Warns about what it cannot keep. What
    /// is kept is unchanged until [`put_in_force`](Self::put_in_force).
    pub(super) fn new(
        name: &str,
        spec: &PolicySpec,
        context: &PolicyContext<'_>,
        before: Option<&Self>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, ServerError> {
        let on_outage = on_outage(spec.on_outage.or(context.defaults.on_outage).unwrap_or_default());
        if let Some(same) = before.filter(|before| before.on_outage == on_outage && alike(&before.spec, spec))
        {
            return Ok(Self { spec: spec.clone(), ..same.clone() });
        }
        let calls = before.map(|before| before.calls.clone()).unwrap_or_default();
        let store = Counted::new(context.backend.clone(), calls.clone(), context.failures.clone());
        let cannot_run = |reason: String| ServerError::policy(name, reason);
        let guards = match &spec.concurrency {
            Some(concurrency) => {
                let kept = before.and_then(|before| before.guards_for(concurrency));
                // The store keeps counting, whichever instance calls it.
                let on_store = concurrency.scope == Scope::Key && before.is_some_and(Self::is_shared);
                if kept.is_none() && !on_store && before.is_some_and(|before| before.guards.is_some()) {
                    warnings.push(format!(
                        "policy `{name}`: slots are counted from zero; those already held continue in \
                         addition"
                    ));
                }
                Some(
                    kept.map_or_else(|| Concurrency::new(concurrency, name, &store), Ok)
                        .map_err(cannot_run)?,
                )
            }
            None => None,
        };
        let fairness = match &spec.fair {
            Some(fair) => {
                let same_outage = before.filter(|before| before.on_outage == on_outage);
                let kept = same_outage
                    .and_then(|before| before.fairness.as_ref()?.kept(before.spec.fair.as_ref()?, fair));
                let new = || Fairness::new(fair, name, context.region, &store, on_outage);
                Some(kept.map_or_else(new, Ok).map_err(|error| cannot_run(error.to_string()))?)
            }
            None => None,
        };
        let kept_store = store.clone();
        let common = Common { name, store, on_outage, guards: guards.as_ref(), fairness: fairness.as_ref() };
        let mut served = Self {
            name: name.into(),
            spec: spec.clone(),
            on_outage,
            calls,
            in_memory: matches!(context.backend, Backend::Memory(_)),
            base: Arc::new(if spec.disabled {
                Variant::unlimited()
            } else if spec.deny {
                Variant::deny()
            } else {
                Variant::new(spec, &common).map_err(cannot_run)?
            }),
            overrides: overrides(spec, &common).map_err(cannot_run)?,
            live: Live::default(),
            guards: None,
            fairness: None,
            store: kept_store,
            own_limits: OwnLimits::default(),
            reservations: reservations(spec, before).map_err(cannot_run)?,
        };
        (served.guards, served.fairness) = (guards.clone(), fairness.clone());
        if let Some(before) = before {
            served.warn_of_fresh_counts(before, warnings);
        }
        Ok(served)
    }

    /// Applies the file to what was kept of the previous policy. It cannot fail, so that a file is applied as a whole
    /// or not at all.
    pub(super) fn put_in_force(&self) {
        if let (Some(guards), Some(spec)) = (&self.guards, &self.spec.concurrency) {
            guards.put_in_force(spec);
        }
        if let (Some(fairness), Some(spec)) = (&self.fairness, &self.spec.fair) {
            fairness.put_in_force(spec);
        }
    }

    fn guards_for(&self, concurrency: &ConcurrencySpec) -> Option<Concurrency> {
        self.guards.as_ref()?.kept(self.spec.concurrency.as_ref()?, concurrency)
    }

    /// Warns if counts restart: states of different algorithms never share a key.
    fn warn_of_fresh_counts(&self, before: &Self, warnings: &mut Vec<String>) {
        let rules = |spec: &PolicySpec| {
            let rate = |rate: &crate::policy::RateSpec| {
                let shape = (rate.algorithm == crate::policy::Algorithm::SlidingWindow)
                    .then_some((rate.per, rate.buckets));
                (rate.name.clone(), rate.algorithm, rate.by, shape)
            };
            // If all limits count by one key they are stored together there, so one that changes its key moves the
            // others.
            (
                spec.rate.iter().map(rate).collect::<Vec<_>>(),
                spec.cost.iter().map(|cost| (cost.limit_name(), cost.by.clone())).collect::<Vec<_>>(),
            )
        };
        let fair = |spec: &PolicySpec| spec.fair.as_ref().map(|fair| (fair.per, fair.regions));
        if rules(&self.spec) != rules(&before.spec) || fair(&self.spec) != fair(&before.spec) {
            warnings.push(format!(
                "policy `{}`: counts start from zero where the rule, its name or its key changed",
                self.name
            ));
        }
    }

    /// Returns the variant of a key: by the whole key, else by the longest prefix, else the policy's own. Of equal
    /// matches, that of an operator precedes that of the file.
    pub(super) fn variant(&self, key: &[u8]) -> Picked<'_> {
        let in_file = self.overrides.longest(key);
        let live = self.live.find(key, in_file.map_or(0, |(length, _)| length));
        match live.and_then(|live| live.variant(|limits| self.build(limits))) {
            Some(variant) => Picked::Live(variant),
            None => Picked::InFile(in_file.map_or(&self.base, |(_, variant)| variant)),
        }
    }

    /// Builds the variant of limits that an operator set. Returns `None` if they do not fit this version of the file.
    fn build(&self, limits: &Limits) -> Option<Variant> {
        let built = limits.over(&self.spec).and_then(|instead| {
            let (guards, fairness) = (self.guards.as_ref(), self.fairness.as_ref());
            let (store, on_outage) = (self.store.clone(), self.on_outage);
            let common = Common { name: &self.name, store, on_outage, guards, fairness };
            overridden(&self.spec, &instead, &common)
        });
        let not_applied = |error: &String| {
            tracing::warn!(policy = &*self.name, error, "override not applied");
        };
        built.inspect_err(not_applied).ok()
    }

    /// Returns the variant of a key, or that of the limit which the request brought along: the policy's only rate with
    /// other numbers, under the same counts.
    pub(super) fn variant_by(
        &self,
        key: &[u8],
        own_limit: Option<OwnLimit>,
    ) -> Result<Arc<Variant>, Refusal> {
        let (Some(own), [rate]) = (own_limit, &self.spec.rate[..]) else {
            return Ok(self.variant(key).clone());
        };
        if self.variant(key).is_unlimited() || self.variant(key).denies().is_some() {
            return Ok(self.variant(key).clone());
        }
        let built = self.own_limits.get(own, || {
            let (limit, per, burst) = (own.limit, Period::Span(Span(own.per)), None);
            let rate = vec![RateSpec { limit, per, burst, ..rate.clone() }];
            let common = Common {
                name: &self.name,
                store: self.store.clone(),
                on_outage: self.on_outage,
                guards: None,
                fairness: None,
            };
            Variant::new(&PolicySpec { rate, wait: None, ..self.spec.clone() }, &common)
        });
        built.map_err(|why| Refusal::Invalid(format!("invalid limit of the request: {why}")))
    }

    /// Returns what to reserve for a call that stated no cost, if the policy learns that.
    pub(super) fn learns(
        &self,
        variant: &Variant,
        ask: &PolicyCall<'_>,
        terms: &WorkTerms<'_>,
    ) -> Option<(Arc<Reservations>, Wanted)> {
        let (reservations, hint) = (self.reservations.as_ref()?, terms.learned?);
        let (budgets, now) = variant.token_budgets()?;
        Some((reservations.clone(), reservations.wanted(ask, &hint, budgets, now)))
    }

    /// Checks many calls, in one batch for each variant. None is checked if one lacks a key.
    pub(super) async fn check_many(
        &self,
        asks: &[PolicyCall<'_>],
    ) -> Result<Vec<Result<Answered, Refusal>>, Refusal> {
        let mut alike: Vec<(Picked<'_>, Vec<usize>)> = Vec::new();
        for (index, ask) in asks.iter().enumerate() {
            let variant = self.variant(ask.key);
            variant.has_keys(1 + ask.others.len())?;
            match alike.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &variant)) {
                Some((_, indices)) => indices.push(index),
                None => alike.push((variant, vec![index])),
            }
        }
        let mut answers: Vec<Option<Result<Answered, Refusal>>> = vec![None; asks.len()];
        for (variant, indices) in alike {
            let calls: Vec<Call<'_>> = indices.iter().map(|index| asks[*index].call()).collect();
            for (index, answer) in indices.into_iter().zip(variant.check_many(&calls).await) {
                answers[index] = Some(answer);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Checks many calls, in one batch for each variant. One that is refused does not affect the others.
    pub(super) async fn check_each(&self, asks: &[PolicyCall<'_>]) -> Vec<Result<Answered, Refusal>> {
        if self.in_memory {
            return self.check_in_turn(asks).await;
        }
        let refused = |ask: &PolicyCall<'_>| {
            ask.judge().and_then(|()| self.variant(ask.key).has_keys(1 + ask.others.len())).err()
        };
        let refused: Vec<_> = asks.iter().map(refused).collect();
        let valid = asks.iter().zip(&refused).filter(|(_, refused)| refused.is_none());
        let valid: Vec<_> = valid.map(|(ask, _)| *ask).collect();
        let mut answers = match self.check_many(&valid).await {
            Ok(answers) => answers,
            Err(refusal) => vec![Err(refusal); valid.len()],
        }
        .into_iter();
        let missing = || Err(StoreError::bad_state("a batch with too few results").into());
        let answer = |refused: Option<Refusal>| match refused {
            Some(refusal) => Err(refusal),
            None => answers.next().unwrap_or_else(missing),
        };
        refused.into_iter().map(answer).collect()
    }

    /// Checks calls one by one. In memory that is faster than a batch.
    async fn check_in_turn(&self, asks: &[PolicyCall<'_>]) -> Vec<Result<Answered, Refusal>> {
        let mut answers = Vec::with_capacity(asks.len());
        for ask in asks {
            answers.push(match ask.judge() {
                Ok(()) => self.variant(ask.key).check(ask.call()).await,
                Err(refusal) => Err(refusal),
            });
        }
        answers
    }

    /// Checks whether the store counts the slots of each key.
    fn is_shared(&self) -> bool {
        matches!(self.guards, Some(Concurrency::Key(_)))
    }

    /// Checks whether returns to stores are still pending.
    pub(super) fn is_settling(&self) -> bool {
        let slots = matches!(&self.guards, Some(Concurrency::Key(slots)) if slots.stats().in_flight > 0);
        slots || self.variants().any(|variant| variant.is_settling())
    }

    pub(super) fn lease_for(&self) -> Duration {
        self.spec.concurrency.as_ref().map_or(LEASE_FOR, ConcurrencySpec::slot_lease)
    }

    /// Checks whether the count of its slots is lost with this process.
    pub(super) fn forgets_slots(&self) -> bool {
        self.guards.as_ref().is_some_and(|guards| self.in_memory || guards.are_local())
    }

    pub(super) fn kind(&self) -> &'static str {
        self.base.kind()
    }

    /// Returns the number of calls that wait here.
    pub(super) fn waiting(&self) -> u64 {
        let mut waiting: Vec<_> = self.variants().filter(|variant| variant.queue.is_some()).collect();
        // A variant that several overrides share counts once.
        waiting.sort_by_key(Arc::as_ptr);
        waiting.dedup_by_key(|variant| Arc::as_ptr(variant));
        let queues = waiting.iter().filter_map(|variant| variant.queue.as_ref());
        queues.map(|queue| queue.waiting() as u64).sum()
    }

    /// Returns the number of store calls for it.
    pub(super) fn store_calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    pub(super) fn guard(&self, held: u64) -> Option<GuardView> {
        self.guards.as_ref().map(|guards| guards.view(&self.name, held))
    }

    /// Returns the share of a tenant of a fair policy at this instance.
    pub(super) fn share_of(&self, tenant: &[u8]) -> Option<TenantShare> {
        self.fairness.as_ref()?.share_of(tenant)
    }

    /// Returns units that were fetched and not spent.
    pub(super) async fn close(&self) {
        for variant in self.variants() {
            variant.close().await;
        }
    }

    /// Returns the variants of all keys. One that several overrides share is repeated.
    pub(super) fn variants(&self) -> impl Iterator<Item = Arc<Variant>> {
        std::iter::once(&self.base).chain(self.overrides.values()).cloned().chain(self.live.built())
    }
}

/// The variant of a key.
pub(super) enum Picked<'a> {
    /// Of the file.
    InFile(&'a Arc<Variant>),
    /// Of an operator's override.
    Live(Arc<Variant>),
}

impl Deref for Picked<'_> {
    type Target = Arc<Variant>;

    fn deref(&self) -> &Arc<Variant> {
        match self {
            Self::InFile(variant) => variant,
            Self::Live(variant) => variant,
        }
    }
}

/// Checks whether two policies have the same limits, whatever their description.
fn alike(one: &PolicySpec, other: &PolicySpec) -> bool {
    let asked = |spec: &PolicySpec| PolicySpec { description: None, shadow: false, ..spec.clone() };
    asked(one) == asked(other)
}

/// Creates the overrides. Those with the same limits share one variant.
fn overrides(spec: &PolicySpec, common: &Common<'_>) -> Result<ByKey<Arc<Variant>>, String> {
    let mut known: HashMap<String, Arc<Variant>> = HashMap::new();
    let each = spec.overrides.iter().map(|(pattern, instead)| {
        let same = serde_json::to_string(instead).map_err(|error| error.to_string())?;
        if let Some(variant) = known.get(&same) {
            return Ok((pattern.as_str(), variant.clone()));
        }
        let variant = Arc::new(overridden(spec, instead, common)?);
        known.insert(same, variant.clone());
        Ok((pattern.as_str(), variant))
    });
    each.collect()
}

/// Returns the learners of a policy: those of the previous one, if its budgets are the same.
fn reservations(
    spec: &PolicySpec,
    before: Option<&RunningPolicy>,
) -> Result<Option<Arc<Reservations>>, String> {
    let Some(learn) = &spec.learn else { return Ok(None) };
    let same = before.filter(|before| before.spec.learn == spec.learn && before.spec.cost == spec.cost);
    match same.and_then(|before| before.reservations.clone()) {
        Some(kept) => Ok(Some(kept)),
        None => Ok(Some(Arc::new(Reservations::new(learn)?))),
    }
}

fn overridden(spec: &PolicySpec, instead: &OverrideSpec, common: &Common<'_>) -> Result<Variant, String> {
    if instead.unlimited || spec.disabled {
        return Ok(Variant::unlimited());
    }
    if instead.deny || spec.deny {
        return Ok(Variant::deny());
    }
    let mut spec = spec.clone();
    if !instead.rate.is_empty() {
        spec.rate.clone_from(&instead.rate);
    }
    if !instead.cost.is_empty() {
        spec.cost.clone_from(&instead.cost);
    }
    Variant::new(&spec, common)
}

fn on_outage(spec: OutageSpec) -> OnOutage {
    match spec {
        OutageSpec::Closed => OnOutage::Closed,
        OutageSpec::Open => OnOutage::Open,
        OutageSpec::Local { nodes } => OnOutage::Local { nodes: NonZeroU32::max(nodes, NonZeroU32::MIN) },
    }
}
