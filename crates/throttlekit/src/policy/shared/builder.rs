//! Builder for a policy over a store.

use std::sync::Arc;

use throttlekit_core::rate::{Budget, Limit};

use super::SharedPolicy;
use super::group::Group;
use super::local_step::LocalStep;
use super::part::{Dimensions, Part, Parts};
use super::spend_step::SpendStep;
use crate::clock::SystemClock;
use crate::memory::Capacity;
use crate::observe::Observer;
use crate::policy::builder::counted;
use crate::policy::local::Local;
use crate::policy::names::names;
use crate::policy::{Dimension, TokenLimit};
use crate::price::Pricer;
use crate::store::{SlotStore, Store};
use crate::{Axis, BuildError, Concurrency, OnOutage, SharedFairLimiter, SharedGuard};

/// Builder of a [`SharedPolicy`]: any subset of the axes.
///
/// Values are counted on the policy's store: all limits of the rate and the cost axis in one atomic group, which one
/// round trip charges, all or none. What is built already ([`with`](Self::with)) is used as it is, as a step of its own.
///
/// Steps are evaluated in the order of their axes, those of one axis in the order in which they are added. A shaper,
/// whose turns cannot be returned, must be in the last step; likewise a smooth rate that is leased, whose units expire
/// locally.
pub struct SharedPolicyBuilder<S> {
    store: Arc<S>,
    name: Box<str>,
    pricer: Option<Pricer>,
    /// Limits on the policy's own store.
    limits: Vec<(Dimension, Limit)>,
    /// Dimensions of the limits of this process.
    locals: Vec<Dimension>,
    shares: Option<Budget>,
    parts: Parts,
    route_by: Option<usize>,
    on_outage: OnOutage,
    observer: Option<Box<dyn Observer>>,
    /// The first error.
    wrong: Option<BuildError>,
}

impl<S: Store> SharedPolicyBuilder<S> {
    pub(super) fn new(store: S, name: &str) -> Self {
        Self {
            store: Arc::new(store),
            name: name.into(),
            pricer: None,
            limits: Vec::new(),
            locals: Vec::new(),
            shares: None,
            parts: Parts::default(),
            route_by: None,
            on_outage: OnOutage::default(),
            observer: None,
            wrong: None,
        }
    }

    /// Limits the number of concurrent calls over all processes, by slots with leases on the store. Takes one round
    /// trip; slots are released in the background. The limit is a fixed number, for each key or in total; a
    /// [guard](Self::with) in process or one that is divided over nodes may be adaptive.
    pub fn concurrency(mut self, limit: impl Into<Concurrency>) -> Self
    where
        S: SlotStore,
    {
        match SharedGuard::new(self.store.clone(), &self.name, limit) {
            Ok(guard) => self.parts.slots = guard.into(),
            Err(error) => self.fail(error),
        }
        self
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

    /// Limits how much each key may use. The cost of a call is reserved in full or not at all; the permit settles the
    /// actual use. The [debit](crate::SharedPermit::debit) that crosses the edge of a [`Budget`] passes and counts in
    /// full.
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
        self.settle_on_store()
    }

    /// Adds a budget that all callers share by equal weight, in units of cost, together with other processes.
    pub fn fair(self, budget: Budget) -> Self {
        Self { shares: Some(budget), ..self }.settle_on_store()
    }

    /// Adds what is built already: a guard, a shared or a leased limiter, a fair limiter; in process or on any store.
    ///
    /// A [`SharedLimiter`](crate::SharedLimiter) with several limits takes the axis of each, and is an atomic group of
    /// its own: `with([Axis::Rate, Axis::Cost], limiter)`, or with the keys that they apply to: `with([Axis::Rate.by(0),
    /// Axis::Cost.by(1)], limiter)`. Of a leased limiter, a window takes unused units back; those of a smooth rate
    /// expire.
    pub fn with(mut self, on: impl Into<Dimensions>, part: impl Part) -> Self {
        if let Err(error) = part.join(&on.into(), &mut self.parts) {
            self.fail(error);
        }
        self
    }

    /// Adds a limit of the rate or the cost axis that is counted in this process only. Its name in denials begins with
    /// `local.`.
    pub fn local<L: TryInto<Limit>>(mut self, on: impl Into<Dimension>, limit: L) -> Self
    where
        BuildError: From<L::Error>,
    {
        let on = on.into();
        match limit.try_into().map_err(BuildError::from).and_then(|limit| counted(on).map(|()| limit)) {
            Ok(limit) => {
                self.locals.push(on);
                let name = names(&self.locals).pop().unwrap_or_default();
                let (limits, clock) = (vec![(on, limit)], SystemClock::for_limit(&limit));
                let local = Local::named(limits, &[format!("local.{name}")], Capacity::default(), clock);
                self.parts.step(LocalStep { axis: on.axis, local });
            }
            Err(error) => self.fail(error),
        }
        self
    }

    /// Keeps all keys of a call in the cluster slot of its key at `index`, so that a policy whose limits count by
    /// different keys spreads over a cluster.
    ///
    /// Correct only if each key always comes with the same key at this index, as users do with their organization: under
    /// another it counts as another. Default: the key that all limits count by; if they count by different keys, all keys
    /// of the policy live in one slot.
    pub fn route_by(self, index: usize) -> Self {
        Self { route_by: Some(index), ..self }
    }

    /// Sets the fallback for rate, cost and fairness while the store is unavailable. Default: deny.
    pub fn on_outage(self, choice: OnOutage) -> Self {
        Self { on_outage: choice, ..self }
    }

    /// Sets the observer, which is called once for every decision.
    pub fn observer(self, observer: impl Observer) -> Self {
        Self { observer: Some(Box::new(observer)), ..self }
    }

    /// Runs settlements on the background of the policy's store, unless a part on another store came first.
    fn settle_on_store(self) -> Self {
        self.parts.settler.run_on(self.store.background());
        self
    }

    fn fail(&mut self, error: BuildError) {
        self.wrong.get_or_insert(error);
    }

    /// Builds the policy. Fails if a limit is invalid for it.
    pub fn build(self) -> Result<SharedPolicy, BuildError> {
        let Self {
            store, name, pricer, limits, shares, mut parts, route_by, on_outage, observer, wrong, ..
        } = self;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        if !limits.is_empty() {
            let group = Group { store: store.clone(), policy: &name, limits, route_by, on_outage };
            group.join(&mut parts)?;
        }
        if let Some(budget) = shares {
            let limiter = SharedFairLimiter::builder(store, &name, budget);
            let (meter, settler) = (Arc::new(limiter.on_outage(on_outage).build()?), parts.settler.clone());
            parts.step(SpendStep { meter, on: Axis::Fairness.into(), settler });
        }
        let Parts { slots, mut steps, settler } = parts;
        steps.sort_by_key(|step| (step.axes(), !step.hands_back()));
        if steps.iter().rev().skip(1).any(|step| !step.hands_back()) {
            return Err(BuildError::OrderOfLimits);
        }
        Ok(SharedPolicy { name, slots, pricer, steps, observer, settler })
    }
}

debug_fields!([S] SharedPolicyBuilder<S>, |it| name = it.name);
