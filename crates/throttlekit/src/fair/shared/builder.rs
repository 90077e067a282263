//! The choices a shared fair limiter is made of.

use std::sync::Mutex;
use std::time::Duration;

use throttlekit_core::fair::branch::{Branch, BranchPlan};
use throttlekit_core::fair::{MEMBERS_MAX, Weight};
use throttlekit_core::lease::Margin;
use throttlekit_core::rate::Need;
use throttlekit_core::{Cost, Timestamp};
use tokio::sync::Notify;

use super::branch_state::BranchState;
use super::limiter::{Counters, Place};
use super::{Budget, SharedFairLimiter};
use crate::builder::KEYS_MAX_DEFAULT;
use crate::fair::limiter::WeightOf;
use crate::shared::{StandIn, Tallies};
use crate::store::LocalShare;
use crate::{BootClock, KeyHash, LeaseClock, LimitError, OnOutage, SecretHash};

/// Unless chosen, a place that has all of the budget fetches it in so many parts.
const QUANTA: u64 = 128;
const HOLD: Duration = Duration::from_millis(20);
/// Shorter than a caller takes to look again after a reply, each ask would wait for another.
const HOLD_MIN: Duration = Duration::from_millis(1);

/// What a [`SharedFairLimiter`] is made of.
pub struct SharedFairBuilder<B, C = BootClock> {
    budget: Result<B, LimitError>,
    weight_of: WeightOf,
    tenants_max: usize,
    quantum: Option<Cost>,
    hold: Duration,
    margin: Margin,
    on_outage: OnOutage,
    clock: C,
}

impl<B: Budget> SharedFairBuilder<B> {
    pub(super) fn new(budget: Result<B, LimitError>) -> Self {
        Self {
            budget,
            weight_of: Box::new(|_| Weight::ONE),
            tenants_max: KEYS_MAX_DEFAULT,
            quantum: None,
            hold: HOLD,
            margin: Margin::default(),
            on_outage: OnOutage::default(),
            clock: BootClock,
        }
    }

    /// A place that fetches from elsewhere.
    pub fn over(budget: B) -> Self {
        Self::new(Ok(budget))
    }
}

impl<B: Budget, C: LeaseClock + 'static> SharedFairBuilder<B, C> {
    /// How much each tenant weighs here. Asked at every ask, so that a new weight counts from a tenant's next ask on. All
    /// weigh the same unless stated. A tenant of several regions has in each the part of its weight that it asks for
    /// there: its full weight in each would count as often.
    pub fn weights(self, weight_of: impl Fn(&[u8]) -> Weight + Send + Sync + 'static) -> Self {
        Self { weight_of: Box::new(weight_of), ..self }
    }

    /// How many tenants of one window are kept apart. A tenant that comes when there are as many takes the place, and
    /// the use, of the one that has used least; so no tenant ever gets a fresh budget.
    pub fn tenants_max(self, tenants: usize) -> Self {
        Self { tenants_max: tenants.clamp(1, MEMBERS_MAX), ..self }
    }

    /// In multiples of how many units the budget is fetched; a 128th of it unless chosen. Fewer are fairer and take more
    /// round trips.
    pub fn quantum(self, units: Cost) -> Self {
        Self { quantum: Some(units.max(1)), ..self }
    }

    /// For how long a place believes what it was told: a tenant that has had its share is denied without asking again;
    /// 20 ms unless chosen, a millisecond at the least.
    pub fn hold(self, hold: Duration) -> Self {
        Self { hold: hold.max(HOLD_MIN), ..self }
    }

    /// What the clocks of this machine and of the budget may be wrong by.
    pub fn margin(self, margin: Margin) -> Self {
        Self { margin, ..self }
    }

    /// What to answer while the budget cannot be asked and nothing is in hand. Unless chosen, refusals. Under
    /// [`OnOutage::Local`] tenants are served as they come, from this place's share.
    pub fn on_outage(self, choice: OnOutage) -> Self {
        Self { on_outage: choice, ..self }
    }

    /// By which clock units die.
    pub fn clock<D: LeaseClock>(self, clock: D) -> SharedFairBuilder<B, D> {
        let Self { budget, weight_of, tenants_max, quantum, hold, margin, on_outage, .. } = self;
        SharedFairBuilder { budget, weight_of, tenants_max, quantum, hold, margin, on_outage, clock }
    }

    /// The limiter, or why the limit is none that can be shared so.
    pub fn build(self) -> Result<SharedFairLimiter<B, C>, LimitError> {
        let budget = self.budget?;
        let background = budget.background();
        let limit = *budget.limit();
        let margin = self.margin.behind(self.clock.behind_max());
        if margin.deadline(Timestamp::EPOCH, limit.period()) == Timestamp::EPOCH {
            return Err(LimitError::LeaseTooShort(limit.period()));
        }
        let quantum = self.quantum.unwrap_or(limit.units().div_ceil(QUANTA));
        let plan = BranchPlan { limit: limit.units(), quantum, hold: self.hold, margin };
        Ok(SharedFairLimiter::from_place(Place {
            budget,
            weight_of: self.weight_of,
            clock: self.clock,
            hash: SecretHash::random(),
            hold: self.hold,
            state: Mutex::new(BranchState::new(Branch::new(plan), self.tenants_max)),
            bell: Notify::new(),
            stand_in: StandIn::new(self.on_outage, Need::All, |_, nodes| {
                LocalShare::new(limit, nodes).into()
            }),
            tallies: Tallies::default(),
            counters: Counters::default(),
            background,
        }))
    }
}

impl<B, C> std::fmt::Debug for SharedFairBuilder<B, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedFairBuilder").field("quantum", &self.quantum).finish_non_exhaustive()
    }
}
