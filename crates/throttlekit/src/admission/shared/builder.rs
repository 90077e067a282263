//! Builder for a policy whose axes may be shared.

use std::sync::Arc;

use throttlekit_core::rate::{Limit, LimitError};

use super::SharedPolicy;
use super::local_step::{FairnessStep, LocalStep};
use super::settler::Settler;
use super::slots::Slots;
use super::spend_step::SpendStep;
use super::step::Step;
use super::store_step::StoreStep;
use crate::admission::local::Local;
use crate::admission::{Axis, Dimension, Observer};
use crate::memory::Capacity;
use crate::store::Store;
use crate::{Clock, FairLimiter, LeaseClock, Pricer, SharedFairLimiter, SharedLimiter, SystemClock};

/// Describes a [`SharedPolicy`]: any subset of the axes, each in process or shared, on any stores.
///
/// Limits are evaluated in the order of their axes, those of one axis in the order in which they are added here. A
/// shaper, whose turns cannot be returned, is evaluated last or [together](Self::together) with the limits after it; a
/// smooth rate that is [leased](Self::leased), whose units expire locally, is evaluated last.
pub struct SharedPolicyBuilder {
    name: Box<str>,
    slots: Slots,
    pricer: Option<Pricer>,
    steps: Vec<Arc<dyn Step>>,
    observer: Option<Arc<dyn Observer>>,
    settler: Arc<Settler>,
    wrong: Option<LimitError>,
}

impl SharedPolicyBuilder {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            slots: Slots::default(),
            pricer: None,
            steps: Vec::new(),
            observer: None,
            settler: Arc::default(),
            wrong: None,
        }
    }

    /// Limits the number of concurrent calls: in this process, by a shared concurrency limit, or for each key on a
    /// store.
    pub fn concurrency(self, slots: impl Into<Slots>) -> Self {
        Self { slots: slots.into(), ..self }
    }

    /// Sets the price that the value of a call must reach. Checked before anything is charged.
    pub fn price(self, pricer: Pricer) -> Self {
        Self { pricer: Some(pricer), ..self }
    }

    /// Adds an atomic group: limits of the rate and the cost axis on one store that are charged in one round trip, all
    /// or none. Takes the axis of each limit: `[Axis::Rate, Axis::Cost]`, or with the key it applies to:
    /// `[Axis::Rate.of(0), Axis::Cost.of(1)]`.
    ///
    /// The expected cost of a call is reserved in full or not at all, also from a token budget: only a
    /// [debit](crate::SharedPermit::debit) may exceed it.
    pub fn together<S: Store, C: LeaseClock + 'static, D: Into<Dimension>>(
        mut self,
        limiter: SharedLimiter<S, C>,
        on: impl IntoIterator<Item = D>,
    ) -> Self {
        let on: Box<[Dimension]> = on.into_iter().map(Into::into).collect();
        if on.len() != limiter.limits().len() {
            self.wrong = Some(LimitError::Policy("each limit on a store has an axis"));
        }
        let Some(limiter) = limiter.into_strict() else {
            self.wrong = Some(LimitError::Policy("what is leased is not charged as a group; use `leased`"));
            return self;
        };
        if on.iter().any(|on| !matches!(on.axis, Axis::Rate | Axis::Cost)) {
            self.wrong = Some(LimitError::Policy("limits on a store are of the rate or the cost axis"));
        }
        if limiter.counts_by_one_key() && on.iter().any(|other| other.key != on[0].key) {
            self.wrong =
                Some(LimitError::Policy("limits that count by different keys are added with `limit_by`"));
        }
        if !limiter.needs_all() {
            self.wrong = Some(LimitError::Policy("limits of which any may allow are no axis"));
        }
        let settler = self.settler.clone();
        settler.run_on(limiter.store().background());
        self.step(StoreStep { limiter, on, settler })
    }

    /// Adds a leased limit of the rate or the cost axis. A window takes unused units back; those of a smooth rate
    /// expire.
    pub fn leased<S: Store, C: LeaseClock + 'static>(
        mut self,
        on: impl Into<Dimension>,
        limiter: SharedLimiter<S, C>,
    ) -> Self {
        let on = on.into();
        if !matches!(on.axis, Axis::Rate | Axis::Cost) {
            self.wrong = Some(LimitError::Policy("what is leased is of the rate or the cost axis"));
        }
        let settler = self.settler.clone();
        settler.run_on(limiter.store().background());
        if limiter.limits().len() > 1 {
            self.wrong = Some(LimitError::Policy("several limits on a store are charged with `together`"));
        }
        if matches!(limiter.limits()[0], Limit::Window(window) if window.is_budget()) {
            self.wrong = Some(LimitError::Policy(
                "an estimate would cross the edge of a budget that is leased; lease a window",
            ));
        }
        self.step(SpendStep { meter: Arc::new(limiter), on, settler })
    }

    /// Adds a limit of the rate or the cost axis in this process.
    pub fn local<L: TryInto<Limit>>(self, on: impl Into<Dimension>, limit: L) -> Self
    where
        LimitError: From<L::Error>,
    {
        self.locals(on.into(), limit.try_into().map_err(LimitError::from))
    }

    fn locals(mut self, on: Dimension, limit: Result<Limit, LimitError>) -> Self {
        let limit = match limit {
            Ok(limit) if matches!(on.axis, Axis::Rate | Axis::Cost) => limit,
            Ok(_) => {
                self.wrong = Some(LimitError::Policy("a limit in process is of the rate or the cost axis"));
                return self;
            }
            Err(error) => {
                self.wrong = Some(error);
                return self;
            }
        };
        let clock = SystemClock::for_limit(&limit);
        let local = Local::new(vec![(on, limit)], Capacity::default(), clock);
        self.step(LocalStep { axis: on.axis, local })
    }

    /// Adds a budget that all callers share by weight, in units of cost, together with other processes.
    pub fn fair<C: LeaseClock + 'static>(self, limiter: impl Into<Arc<SharedFairLimiter<C>>>) -> Self {
        let (on, settler, meter) = (Axis::Fairness.into(), self.settler.clone(), limiter.into());
        settler.run_on(meter.background());
        self.step(SpendStep { meter, on, settler })
    }

    /// Adds a budget that all callers share by weight, in units of cost, in this process.
    pub fn fair_local<D: Clock + 'static>(self, limiter: impl Into<Arc<FairLimiter<D>>>) -> Self {
        self.step(FairnessStep(Box::new(limiter.into())))
    }

    /// Sets the observer, which is called once for every decision.
    pub fn observer(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    fn step(mut self, step: impl Step + 'static) -> Self {
        self.steps.push(Arc::new(step));
        self
    }

    /// Builds the policy. Fails if a limit is invalid for it.
    pub fn build(self) -> Result<SharedPolicy, LimitError> {
        let Self { name, slots, pricer, mut steps, observer, settler, wrong } = self;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        steps.sort_by_key(|step| step.axes());
        if steps.iter().rev().skip(1).any(|step| !step.hands_back()) {
            return Err(LimitError::Policy(
                "a shaper, and a smooth rate that is leased, take nothing back, so nothing may deny after them: ask them last, \
                 lease a window instead, or ask together with what follows",
            ));
        }
        Ok(SharedPolicy { name, slots, pricer, steps, observer, settler })
    }
}

debug_fields!([] SharedPolicyBuilder, |it| name = it.name);
