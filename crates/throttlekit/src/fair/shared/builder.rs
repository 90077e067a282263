//! Builder of a shared fair limiter.

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
use crate::fair::KEYS_MAX_DEFAULT;
use crate::fair::limiter::WeightOf;
use crate::shared::{Fallback, Tallies};
use crate::store::LocalShare;
use crate::sync::Mutex;
use crate::{BootClock, KeyHash, LeaseClock, LimitError, OnOutage, SecretHash};

/// Default number of quanta in which a participant that has all of the budget fetches it.
const QUANTA: u64 = 128;
const HOLD: Duration = Duration::from_millis(20);
/// Minimum hold: below the time that a caller takes to check again after a reply, each request would wait for another.
const HOLD_MIN: Duration = Duration::from_millis(1);

/// Builder of a [`SharedFairLimiter`].
pub struct SharedFairLimiterBuilder<B, C = BootClock> {
    budget: Result<B, LimitError>,
    weight_of: WeightOf,
    tenants_max: usize,
    quantum: Option<Cost>,
    hold: Duration,
    margin: Margin,
    on_outage: OnOutage,
    clock: C,
}

impl<B: Budget> SharedFairLimiterBuilder<B> {
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

    /// Creates a participant that fetches from this budget.
    pub fn over(budget: B) -> Self {
        Self::new(Ok(budget))
    }
}

impl<B: Budget, C: LeaseClock + 'static> SharedFairLimiterBuilder<B, C> {
    /// Sets the weight of each tenant here. Called for every request, so a new weight applies from a tenant's next
    /// request on. Default: equal weights. A tenant of several regions has in each the part of its weight that it uses
    /// there: its full weight in each would count several times.
    pub fn weights(self, weight_of: impl Fn(&[u8]) -> Weight + Send + Sync + 'static) -> Self {
        Self { weight_of: Box::new(weight_of), ..self }
    }

    /// Sets the maximum number of separate tenants in one window. A tenant beyond it takes over the entry, and the use,
    /// of the tenant that has used least; so no tenant ever gets a fresh budget.
    pub fn tenants_max(self, tenants: usize) -> Self {
        Self { tenants_max: tenants.clamp(1, MEMBERS_MAX), ..self }
    }

    /// Sets the quantum: the budget is fetched in multiples of it. Default: a 128th of the budget. Smaller quanta are
    /// fairer and take more round trips.
    pub fn quantum(self, units: Cost) -> Self {
        Self { quantum: Some(units.max(1)), ..self }
    }

    /// Sets how long a participant caches a reply: a tenant that has used its share is denied without another request.
    /// Default: 20 ms. Minimum: 1 ms.
    pub fn hold(self, hold: Duration) -> Self {
        Self { hold: hold.max(HOLD_MIN), ..self }
    }

    /// Sets the margin for clock errors of this machine and of the budget.
    pub fn margin(self, margin: Margin) -> Self {
        Self { margin, ..self }
    }

    /// Sets the fallback while the budget is unavailable and no units are held. Default: fail closed. Under
    /// [`OnOutage::Local`] tenants are served first come, first served, from this participant's share.
    pub fn on_outage(self, choice: OnOutage) -> Self {
        Self { on_outage: choice, ..self }
    }

    /// Sets the clock by which units expire.
    pub fn clock<D: LeaseClock>(self, clock: D) -> SharedFairLimiterBuilder<B, D> {
        let Self { budget, weight_of, tenants_max, quantum, hold, margin, on_outage, .. } = self;
        SharedFairLimiterBuilder { budget, weight_of, tenants_max, quantum, hold, margin, on_outage, clock }
    }

    /// Builds the limiter. Fails if the limit cannot be shared this way.
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
            stand_in: Fallback::new(self.on_outage, Need::All, |_, nodes| {
                LocalShare::new(limit, nodes).into()
            }),
            tallies: Tallies::default(),
            counters: Counters::default(),
            background,
        }))
    }
}

debug_fields!([B, C] SharedFairLimiterBuilder<B, C>, |it| quantum = it.quantum);
