//! A shared fair limiter decides at once with the units that it has fetched, otherwise after a round trip. It holds
//! nothing.

use throttlekit_core::Timestamp;

use super::{Admission, Admit, Admitting, Axis, LimitInfo};
use crate::clock::LeaseClock;
use crate::{Call, SharedFairLimiter};

/// The first key of a call is the tenant. The reported limit is the whole budget; each decision has the tenant's part.
impl<C: LeaseClock + 'static> Admit for SharedFairLimiter<C> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        let tenant = self.tenant(&call);
        if let Some(answer) = self.try_check_tenant(tenant, call.units()) {
            return Admitting::ready(Ok(Admission::answered(Axis::Fairness, answer)));
        }
        let (limiter, cost) = (self.clone(), call.units());
        Admitting::pending(async move {
            let answer = limiter.check_tenant(tenant, cost).await?;
            Ok(Admission::answered(Axis::Fairness, answer))
        })
    }

    fn limits(&self) -> Vec<LimitInfo> {
        vec![LimitInfo::of(Axis::Fairness, self.budget())]
    }

    fn now(&self) -> Timestamp {
        self.now()
    }
}
