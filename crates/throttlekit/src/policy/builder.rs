//! Builder for a policy in this process.

use std::sync::Arc;

use throttlekit_core::rate::{Budget, Limit};

use super::fairness::Fairness;
use super::local::{LIMITS_MAX, Local};
use super::slots::LocalSlots;
use super::{Dimension, Policy, TokenLimit};
use crate::clock::{Clock, SystemClock, WallClock};
use crate::memory::Capacity;
use crate::observe::Observer;
use crate::price::Pricer;
use crate::{Axis, BuildError, Concurrency, FairLimiter};

/// Builder of a [`Policy`]: any subset of the axes, in any order.
///
/// A value is counted in the policy's own state. What is built already is used as it is, and may belong to several
/// policies.
pub struct PolicyBuilder<C = FittingClock> {
    name: Box<str>,
    slots: LocalSlots,
    pricer: Option<Pricer>,
    limits: Vec<(Dimension, Limit)>,
    shares: Shares,
    observer: Option<Box<dyn Observer>>,
    memory_budget: Option<usize>,
    clock: C,
    /// The first error.
    wrong: Option<BuildError>,
}

/// The clock that fits the limits, chosen when they are known.
#[derive(Clone, Copy, Debug)]
pub struct FittingClock;

/// The fairness axis.
enum Shares {
    None,
    Of(Budget),
    Built(Box<dyn Fairness>),
}

impl PolicyBuilder {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            slots: LocalSlots::default(),
            pricer: None,
            limits: Vec::new(),
            shares: Shares::None,
            observer: None,
            memory_budget: None,
            clock: FittingClock,
            wrong: None,
        }
    }

    /// Builds the policy. Fails if a limit is invalid.
    pub fn build(mut self) -> Result<Policy, BuildError> {
        let limits: Vec<Limit> = self.limits.iter().map(|(_, limit)| *limit).collect();
        self.shares = self.shares.built(SystemClock::Wall(WallClock))?;
        self.clock(SystemClock::for_limits(&limits)).build()
    }
}

impl<C> PolicyBuilder<C> {
    /// Limits the number of concurrent calls. Builds a [`Guard`](crate::Guard) for this policy.
    pub fn concurrency(mut self, limit: impl Into<Concurrency>) -> Self {
        match LocalSlots::new(limit.into()) {
            Ok(slots) => self.slots = slots,
            Err(error) => self.fail(error),
        }
        self
    }

    /// Limits the number of concurrent calls by a guard that is built already.
    pub fn guard(self, guard: impl Into<LocalSlots>) -> Self {
        Self { slots: guard.into(), ..self }
    }

    /// Sets the price that the value of a call must reach. Checked before anything is charged.
    pub fn price(self, pricer: Pricer) -> Self {
        Self { pricer: Some(pricer), ..self }
    }

    /// Limits how often each key may call. A [`Budget`] is a hard quota here.
    pub fn rate<L: TryInto<Limit>>(self, limit: L) -> Self
    where
        BuildError: From<L::Error>,
    {
        self.limit(Axis::Rate, limit)
    }

    /// Limits how much each key may use. The cost of a call is reserved, and the permit settles the actual use. The
    /// debit that crosses the edge of a [`Budget`] passes and counts in full.
    pub fn tokens(self, limit: impl Into<TokenLimit>) -> Self {
        self.limited(Axis::Cost.into(), limit.into().0.map_err(BuildError::from))
    }

    /// Adds a limit on the rate or the cost axis, for any of a call's keys: `limit(Axis::Rate.by(1), …)`. A [`Budget`]
    /// is a hard quota here.
    pub fn limit<L: TryInto<Limit>>(self, on: impl Into<Dimension>, limit: L) -> Self
    where
        BuildError: From<L::Error>,
    {
        self.limited(on.into(), limit.try_into().map_err(BuildError::from))
    }

    fn limited(mut self, on: Dimension, limit: Result<Limit, BuildError>) -> Self {
        match limit.and_then(|limit| counted(on).map(|()| limit)) {
            Ok(limit) => self.limits.push((on, limit)),
            Err(error) => self.fail(error),
        }
        self
    }

    /// Adds a budget that all callers share by equal weight, in units of cost.
    pub fn fair(self, budget: Budget) -> Self {
        Self { shares: Shares::Of(budget), ..self }
    }

    /// Adds a budget that all callers share by weight, in units of cost, from a limiter that is built already.
    pub fn fair_limiter<D: Clock + 'static>(self, limiter: impl Into<Arc<FairLimiter<D>>>) -> Self {
        Self { shares: Shares::Built(Box::new(limiter.into())), ..self }
    }

    /// Sets the observer, which is called once for every decision.
    pub fn observer(self, observer: impl Observer) -> Self {
        Self { observer: Some(Box::new(observer)), ..self }
    }

    /// Sets the most bytes that the keys of all limits may take, in equal parts. Default: 128 MiB for each limit. See
    /// [`LimiterBuilder::memory_budget`](crate::limiter::LimiterBuilder::memory_budget).
    pub fn memory_budget(self, bytes: usize) -> Self {
        Self { memory_budget: Some(bytes), ..self }
    }

    /// Sets the clock for the limits, instead of the one that fits them.
    pub fn clock<D: Clock>(self, clock: D) -> PolicyBuilder<D> {
        let Self { name, slots, pricer, limits, shares, observer, memory_budget, wrong, .. } = self;
        PolicyBuilder { name, slots, pricer, limits, shares, observer, memory_budget, clock, wrong }
    }

    fn fail(&mut self, error: BuildError) {
        self.wrong.get_or_insert(error);
    }
}

impl<C: Clock + Clone + 'static> PolicyBuilder<C> {
    /// Builds the policy. Fails if a limit is invalid.
    pub fn build(self) -> Result<Policy<C>, BuildError> {
        let Self { name, slots, pricer, limits, shares, observer, memory_budget, clock, wrong } = self;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        if limits.len() > LIMITS_MAX {
            return Err(BuildError::TooManyLimits { max: LIMITS_MAX });
        }
        let fairness = match shares.built(clock.clone())? {
            Shares::Built(fairness) => Some(fairness),
            _ => None,
        };
        let capacity =
            memory_budget.map(|bytes| Capacity { bytes, ..Capacity::default() }.each_of(limits.len()));
        let local = Local::new(limits, capacity.unwrap_or_default(), clock);
        Ok(Policy { name, slots, pricer, local, fairness, observer })
    }
}

impl Shares {
    /// Builds the fair limiter of a budget, on this clock.
    fn built<C: Clock + 'static>(self, clock: C) -> Result<Self, BuildError> {
        let Self::Of(budget) = self else { return Ok(self) };
        Ok(Self::Built(Box::new(Arc::new(FairLimiter::builder(budget).clock(clock).build()?))))
    }
}

/// Checks that limits of this dimension are counted by key.
pub(super) fn counted(on: Dimension) -> Result<(), BuildError> {
    if on.is_counted() {
        return Ok(());
    }
    Err(BuildError::WrongAxis(
        "a limit belongs to the rate or the cost axis: use `concurrency`, `price` or `fair`",
    ))
}

debug_fields!([C] PolicyBuilder<C>, |it| name = it.name);
