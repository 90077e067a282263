//! What a policy in this process is made of.

use std::sync::Arc;

use throttlekit_core::rate::{Limit, LimitError};

use super::fairness::Fairness;
use super::local::{LIMITS_MAX, Local};
use super::slots::LocalSlots;
use super::{Axis, Dimension, Observer, Policy};
use crate::memory::Capacity;
use crate::{Clock, FairLimiter, KeyHash, Pricer, SystemClock};

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

/// The clock that suits the limits, chosen when they are known.
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

    /// The policy, or why a limit cannot be one.
    pub fn build(self) -> Result<Policy, LimitError> {
        let limits: Vec<Limit> =
            self.limits.iter().filter_map(|(_, limit)| limit.as_ref().ok()).copied().collect();
        self.clock(SystemClock::for_limits(&limits)).build()
    }
}

impl<C> PolicyBuilder<C> {
    /// How many calls are in flight at a time: a [`Guard`](crate::Guard), or a [`KeyedGuard`](crate::KeyedGuard).
    pub fn concurrency(self, slots: impl Into<LocalSlots>) -> Self {
        Self { slots: slots.into(), ..self }
    }

    /// What a call has to be worth. Asked before anything is charged.
    pub fn price(self, pricer: Pricer) -> Self {
        Self { pricer: Some(pricer), ..self }
    }

    /// How often whoever calls may.
    pub fn rate<L: TryInto<Limit>>(self, limit: L) -> Self
    where
        LimitError: From<L::Error>,
    {
        self.limit(Axis::Rate, limit)
    }

    /// How much whoever calls may use.
    pub fn cost<L: TryInto<Limit>>(self, limit: L) -> Self
    where
        LimitError: From<L::Error>,
    {
        self.limit(Axis::Cost, limit)
    }

    /// One more limit, of the rate or the cost axis, by any of a call's keys: `limit(Axis::Rate.of(1), …)`.
    pub fn limit<L: TryInto<Limit>>(mut self, on: impl Into<Dimension>, limit: L) -> Self
    where
        LimitError: From<L::Error>,
    {
        self.limits.push((on.into(), limit.try_into().map_err(LimitError::from)));
        self
    }

    /// What all who call share by weight, in what calls cost.
    pub fn fair<D: Clock + 'static, H: KeyHash + 'static>(
        self,
        limiter: impl Into<Arc<FairLimiter<D, H>>>,
    ) -> Self {
        Self { fairness: Some(Box::new(limiter.into())), ..self }
    }

    /// Who is told of every decision, once.
    pub fn observer(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Sets the most bytes that the keys of all limits may take, in equal parts. Default: 128 MiB for each limit. See
    /// [`Builder::memory_budget`](crate::Builder::memory_budget).
    pub fn memory_budget(self, bytes: usize) -> Self {
        Self { memory_budget: Some(bytes), ..self }
    }

    /// The clock by which the limits go, instead of the one that suits them.
    pub fn clock<D: Clock>(self, clock: D) -> PolicyBuilder<D> {
        let Self { name, slots, pricer, limits, fairness, observer, memory_budget, .. } = self;
        PolicyBuilder { name, slots, pricer, limits, fairness, observer, memory_budget, clock }
    }
}

impl<C: Clock> PolicyBuilder<C> {
    /// The policy, or why a limit cannot be one.
    pub fn build(self) -> Result<Policy<C>, LimitError> {
        let Self { name, slots, pricer, limits, fairness, observer, memory_budget, clock } = self;
        let limits = checked(limits)?;
        let capacity =
            memory_budget.map(|bytes| Capacity { bytes, ..Capacity::default() }.each_of(limits.len()));
        let local = Local::new(limits, capacity.unwrap_or_default(), clock);
        Ok(Policy { name, slots, pricer, local, fairness, observer })
    }
}

/// Limits that a policy can ask in process.
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

impl<C> std::fmt::Debug for PolicyBuilder<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolicyBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
