//! Builder of a shared fair limiter.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::fair::branch::{Branch, BranchPlan};
use throttlekit_core::fair::{MEMBERS_MAX, Weight};
use throttlekit_core::lease::Margin;
use throttlekit_core::rate::{Budget, Limit, LimitError, Need};
use tokio::sync::Notify;

use super::SharedFairLimiter;
use super::branch_state::BranchState;
use super::limiter::{Counters, Place};
use super::source::{Quanta, Region, Source};
use crate::clock::{BootClock, LeaseClock};
use crate::fair::TENANTS_MAX_DEFAULT;
use crate::fair::builder::clamped;
use crate::fair::limiter::WeightOf;
use crate::hash::{KeyHash, SecretHash};
use crate::shared::{Fallback, Tallies};
use crate::store::{LocalShare, RegionStore, Store};
use crate::sync::Mutex;
use crate::{BuildError, OnOutage};

/// Default number of quanta in which a participant that has all of the budget fetches it.
const QUANTA: u64 = 128;
const HOLD: Duration = Duration::from_millis(20);
/// Minimum hold: below the time that a caller takes to check again after a reply, each request would wait for another.
const HOLD_MIN: Duration = Duration::from_millis(1);

/// Builder of a [`SharedFairLimiter`].
pub struct SharedFairLimiterBuilder<S, C = BootClock> {
    store: S,
    name: String,
    budget: Budget,
    source: Open<S>,
    region: String,
    plan: Plan<C>,
}

/// Opens the source of units for a name, a region and a window.
type Open<S> = fn(S, &str, &str, &Limit) -> Result<Box<dyn Source>, LimitError>;

/// The settings that do not depend on the store.
pub(super) struct Plan<C> {
    pub(super) weight_of: WeightOf,
    pub(super) tenants_max: usize,
    pub(super) quantum: Option<u64>,
    pub(super) hold: Duration,
    pub(super) margin: Margin,
    pub(super) on_outage: OnOutage,
    pub(super) clock: C,
}

impl Default for Plan<BootClock> {
    fn default() -> Self {
        Self {
            weight_of: Box::new(|_| Weight::ONE),
            tenants_max: TENANTS_MAX_DEFAULT,
            quantum: None,
            hold: HOLD,
            margin: Margin::default(),
            on_outage: OnOutage::default(),
            clock: BootClock,
        }
    }
}

impl<S: Store> SharedFairLimiterBuilder<S> {
    pub(super) fn new(store: S, name: &str, budget: Budget) -> Self {
        let source = |store, name: &str, _: &str, limit: &Limit| -> Result<Box<dyn Source>, LimitError> {
            Ok(Box::new(Quanta::new(store, name, limit)?))
        };
        Self { store, name: name.into(), budget, source, region: String::new(), plan: Plan::default() }
    }
}

impl<S: Store, C: LeaseClock + 'static> SharedFairLimiterBuilder<S, C> {
    /// Shares the budget by weight between regions too: the store tracks the weight of each. Default: processes take
    /// units first come, first served.
    ///
    /// Each process that fetches units is a region of its own: name it accordingly, as `eu-west/7`.
    pub fn region(self, region: &str) -> Self
    where
        S: RegionStore,
    {
        let source =
            |store, name: &str, region: &str, limit: &Limit| -> Result<Box<dyn Source>, LimitError> {
                Ok(Box::new(Region::new(store, name, region, limit)?))
            };
        Self { source, region: region.into(), ..self }
    }

    /// Sets the weight of each tenant here, from 1 to 2³⁴; other values are clamped. Called for every request, so a new
    /// weight applies from a tenant's next request on. Default: 1. A tenant of several regions has in each the part of
    /// its weight that it uses there: its full weight in each would count several times.
    pub fn weights(mut self, weight_of: impl Fn(&[u8]) -> u64 + Send + Sync + 'static) -> Self {
        self.plan.weight_of = clamped(weight_of);
        self
    }

    /// Sets the maximum number of separate tenants in one window. A tenant beyond it takes over the entry, and the use,
    /// of the tenant that has used least; so no tenant ever gets a fresh budget. Default: 65,536.
    pub fn tenants_max(mut self, tenants: usize) -> Self {
        self.plan.tenants_max = tenants.clamp(1, MEMBERS_MAX);
        self
    }

    /// Sets the quantum: the budget is fetched in multiples of it. Default: a 128th of the budget. Smaller quanta are
    /// fairer and take more round trips.
    pub fn quantum(mut self, units: u64) -> Self {
        self.plan.quantum = Some(units.max(1));
        self
    }

    /// Sets how long a participant caches a reply: a tenant that has used its share is denied without another request.
    /// Default: 20 ms. Minimum: 1 ms.
    pub fn hold(mut self, hold: Duration) -> Self {
        self.plan.hold = hold.max(HOLD_MIN);
        self
    }

    /// Sets the margin for clock errors of this machine and of the store.
    pub fn margin(mut self, margin: Margin) -> Self {
        self.plan.margin = margin;
        self
    }

    /// Sets the fallback while the store is unavailable and no units are held. Default: fail closed. Under
    /// [`OnOutage::Local`] tenants are served first come, first served, from this participant's share.
    pub fn on_outage(mut self, choice: OnOutage) -> Self {
        self.plan.on_outage = choice;
        self
    }

    /// Sets the clock by which units expire.
    pub fn clock<D: LeaseClock>(self, clock: D) -> SharedFairLimiterBuilder<S, D> {
        let Self { store, name, budget, source, region, plan } = self;
        SharedFairLimiterBuilder { store, name, budget, source, region, plan: plan.by(clock) }
    }

    /// Builds the limiter. Fails if the budget is invalid, if a store cannot represent it, or if its windows are too
    /// short for units to be spent in them.
    pub fn build(self) -> Result<SharedFairLimiter<C>, BuildError> {
        let Self { store, name, budget, source, region, plan } = self;
        let limit = Limit::try_from(budget)?;
        plan.over(source(store, &name, &region, &limit)?)
    }
}

impl<C> Plan<C> {
    pub(super) fn by<D>(self, clock: D) -> Plan<D> {
        let Self { weight_of, tenants_max, quantum, hold, margin, on_outage, .. } = self;
        Plan { weight_of, tenants_max, quantum, hold, margin, on_outage, clock }
    }
}

impl<C: LeaseClock + 'static> Plan<C> {
    /// Builds a participant that fetches from this source.
    pub(super) fn over(self, source: Box<dyn Source>) -> Result<SharedFairLimiter<C>, BuildError> {
        let background = source.background();
        let limit = *source.limit();
        let margin = self.margin.behind(self.clock.behind_max());
        if margin.deadline(Timestamp::EPOCH, limit.period()) == Timestamp::EPOCH {
            return Err(BuildError::LeaseTooShort(limit.period()));
        }
        let quantum = self.quantum.unwrap_or(limit.units().div_ceil(QUANTA));
        let plan = BranchPlan { limit: limit.units(), quantum, hold: self.hold, margin };
        Ok(SharedFairLimiter::from_place(Place {
            source,
            weight_of: self.weight_of,
            clock: self.clock,
            hash: SecretHash::random(),
            hold: self.hold,
            state: Mutex::new(BranchState::new(Branch::new(plan), self.tenants_max)),
            bell: Notify::new(),
            stand_in: Fallback::new(self.on_outage, Need::All, 1, |_, nodes| {
                LocalShare::new(limit, nodes).into()
            }),
            tallies: Tallies::default(),
            counters: Counters::default(),
            background,
        }))
    }
}

debug_fields!([S, C] SharedFairLimiterBuilder<S, C>, |it| budget = it.budget, region = it.region);
