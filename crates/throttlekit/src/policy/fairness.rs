//! The fairness axis in this process.

use std::sync::Arc;

use throttlekit_core::Decision;
use throttlekit_core::fair::Weight;

use super::Axis;
use crate::admit::LimitInfo;
use crate::clock::Clock;
pub(super) use crate::fair::Portion;
use crate::{Call, FairLimiter};

/// A budget that tenants share, with any clock.
pub(super) trait Fairness: Send + Sync {
    /// Returns the weight of the tenant. Runs the caller's own code: no lock may be held meanwhile.
    fn weight(&self, call: &Call<'_>) -> Weight;

    /// Decides a request, and charges it if allowed: then returns the portion that can be settled.
    fn charge(&self, call: &Call<'_>, weight: Weight) -> (Decision, Option<Portion>);

    /// Charges units that were not reserved, if allowed. The tenant's weight stays the same.
    fn debit(&self, portion: &Portion, cost: u64) -> Decision;

    /// Returns the whole budget, for response headers.
    fn limit(&self) -> LimitInfo;

    /// Replaces the charge by the actual use.
    fn settle(&self, portion: &Portion, charged: u64, actual: u64);
}

impl<C: Clock + 'static> Fairness for Arc<FairLimiter<C>> {
    fn weight(&self, call: &Call<'_>) -> Weight {
        FairLimiter::weight(self, call)
    }

    fn charge(&self, call: &Call<'_>, weight: Weight) -> (Decision, Option<Portion>) {
        self.reserve(call, weight)
    }

    fn debit(&self, portion: &Portion, cost: u64) -> Decision {
        FairLimiter::debit(self, portion, cost)
    }

    fn limit(&self) -> LimitInfo {
        LimitInfo::new(Axis::Fairness, self.stats().limit, Some(self.period())).refundable()
    }

    fn settle(&self, portion: &Portion, charged: u64, actual: u64) {
        self.replace(portion, charged, actual);
    }
}
