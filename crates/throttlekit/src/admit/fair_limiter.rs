//! A fair limiter decides at once and holds nothing.

use throttlekit_core::Timestamp;

use super::{Admission, Admit, Admitting, Axis, LimitInfo, SharedPermit};
use crate::clock::Clock;
use crate::{Call, FairLimiter};

/// The first key of a call is the tenant. The reported limit is the whole budget; each decision has the tenant's part.
impl<C: Clock + 'static> Admit for FairLimiter<C> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        Admitting::ready(Ok(Admission::of(Axis::Fairness, self.check(call), SharedPermit::none())))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        vec![LimitInfo::new(Axis::Fairness, self.stats().limit, Some(self.period()))]
    }

    fn now(&self) -> Timestamp {
        self.now()
    }
}
