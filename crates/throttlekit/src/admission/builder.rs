//! Builder for a policy in this process.

use std::sync::Arc;

use throttlekit_core::rate::{Limit, LimitError};

use super::fairness::Fairness;
use super::local::{LIMITS_MAX, Local};
use super::slots::LocalSlots;
use super::{Axis, Dimension, Observer, Policy};
use crate::memory::Capacity;
use crate::{Clock, FairLimiter, Pricer, SystemClock};

/// Describes a [`Policy`]: any subset of the axes, in any order.
pub struct PolicyBuilder<C = Suiting> {
    name: Box<str>,
    slots: LocalSlots,
    pricer: Option<Pricer>,
    limits: Vec<(Dimension, Result<Limit, LimitError>)>,
    fairness: Option<Box<dyn Fairness>>,
    observer: Option<Arc<dyn Observer>>,
    memory_budget: Option<usize>,
    clock: C,
}

/// The clock that fits the limits, chosen when they are known.
#[derive(Clone, Copy, Debug)]
pub struct Suiting;

impl PolicyBuilder {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            slots: LocalSlots::default(),
            pricer: None,
            limits: Vec::new(),
            fairness: None,
            observer: None,
            memory_budget: None,
            clock: Suiting,
        }
    }

    /// Builds the policy. Fails if a limit is invalid.
    pub fn build(self) -> Result<Policy, LimitError> {
        let limits: Vec<Limit> =
            self.limits.iter().filter_map(|(_, limit)| limit.as_ref().ok()).copied().collect();
        self.clock(SystemClock::for_limits(&limits)).build()
    }
}

impl<C> PolicyBuilder<C> {
    /// Limits the number of concurrent calls: with a [`Guard`](crate::Guard), or a [`KeyedGuard`](crate::KeyedGuard).
    pub fn concurrency(self, slots: impl Into<LocalSlots>) -> Self {
        Self { slots: slots.into(), ..self }
    }

    /// Sets the price that the value of a call must reach. Checked before anything is charged.
    pub fn price(self, pricer: Pricer) -> Self {
        Self { pricer: Some(pricer), ..self }
    }

    /// Limits how often each key may call.
    pub fn rate<L: TryInto<Limit>>(self, limit: L) -> Self
    where
        LimitError: From<L::Error>,
    {
        self.limit(Axis::Rate, limit)
    }

    /// Limits how much each key may use.
    pub fn cost<L: TryInto<Limit>>(self, limit: L) -> Self
    where
        LimitError: From<L::Error>,
    {
        self.limit(Axis::Cost, limit)
    }

    /// Adds a limit on the rate or the cost axis, for any of a call's keys: `limit(Axis::Rate.of(1), …)`.
    pub fn limit<L: TryInto<Limit>>(mut self, on: impl Into<Dimension>, limit: L) -> Self
    where
        LimitError: From<L::Error>,
    {
        self.limits.push((on.into(), limit.try_into().map_err(LimitError::from)));
        self
    }

    /// Adds a budget that all callers share by weight, in units of cost.
    pub fn fair<D: Clock + 'static>(self, limiter: impl Into<Arc<FairLimiter<D>>>) -> Self {
        Self { fairness: Some(Box::new(limiter.into())), ..self }
    }

    /// Sets the observer, which is called once for every decision.
    pub fn observer(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Sets the most bytes that the keys of all limits may take, in equal parts. Default: 128 MiB for each limit. See
    /// [`LimiterBuilder::memory_budget`](crate::limiter::LimiterBuilder::memory_budget).
    pub fn memory_budget(self, bytes: usize) -> Self {
        Self { memory_budget: Some(bytes), ..self }
    }

    /// Sets the clock for the limits, instead of the one that fits them.
    pub fn clock<D: Clock>(self, clock: D) -> PolicyBuilder<D> {
        let Self { name, slots, pricer, limits, fairness, observer, memory_budget, .. } = self;
        PolicyBuilder { name, slots, pricer, limits, fairness, observer, memory_budget, clock }
    }
}

impl<C: Clock> PolicyBuilder<C> {
    /// Builds the policy. Fails if a limit is invalid.
    pub fn build(self) -> Result<Policy<C>, LimitError> {
        let Self { name, slots, pricer, limits, fairness, observer, memory_budget, clock } = self;
        let limits = checked(limits)?;
        let capacity =
            memory_budget.map(|bytes| Capacity { bytes, ..Capacity::default() }.each_of(limits.len()));
        let local = Local::new(limits, capacity.unwrap_or_default(), clock);
        Ok(Policy { name, slots, pricer, local, fairness, observer })
    }
}

/// Validates the limits that a policy evaluates in process.
pub(super) fn checked(
    limits: Vec<(Dimension, Result<Limit, LimitError>)>,
) -> Result<Vec<(Dimension, Limit)>, LimitError> {
    if limits.len() > LIMITS_MAX {
        return Err(LimitError::Policy("at most six limits are asked in process"));
    }
    if limits.iter().any(|(on, _)| !matches!(on.axis, Axis::Rate | Axis::Cost)) {
        return Err(LimitError::Policy(
            "a limit is of the rate or the cost axis; give a guard to `concurrency`, a fair limiter to `fair`",
        ));
    }
    limits.into_iter().map(|(on, limit)| Ok((on, limit?))).collect()
}

debug_fields!([C] PolicyBuilder<C>, |it| name = it.name);
