//! A shared limiter decides at once with what it has leased, otherwise after a round trip. It holds nothing.

use throttlekit_core::Timestamp;

use super::{Admission, Admit, Admitting, Axis, LimitInfo, SharedPermit};
use crate::call::OwnedCall;
use crate::clock::LeaseClock;
use crate::store::Store;
use crate::{Answer, Call, SharedLimiter};

impl<S: Store, C: LeaseClock + 'static> Admit for SharedLimiter<S, C> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        if let Some(decision) = self.try_check(call) {
            let admission = Admission::of(Axis::Rate, decision, SharedPermit::none());
            return Admitting::ready(Ok(Admission { guarantee: self.local_guarantee(), ..admission }));
        }
        if let Some(answer) = self.check_now(&call) {
            return Admitting::ready(answer.map(Admission::from));
        }
        let (limiter, call) = (self.clone(), OwnedCall::of(&call));
        Admitting::pending(async move {
            let others = call.others();
            limiter.check(call.borrowed(&others)).await.map(Admission::from)
        })
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.limits().iter().map(|limit| LimitInfo::of(Axis::Rate, limit)).collect()
    }

    fn now(&self) -> Timestamp {
        self.now()
    }
}

/// The charge stays: a limiter holds nothing.
impl From<Answer> for Admission {
    fn from(answer: Answer) -> Self {
        Self::answered(Axis::Rate, answer)
    }
}

impl Admission {
    /// Creates the result of a limiter on one axis, which holds nothing.
    pub(super) fn answered(axis: Axis, answer: Answer) -> Self {
        let Answer { decision, limit_name, guarantee, outage, shadow_denied, .. } = answer;
        let admission = Self::of(axis, decision, SharedPermit::none()).named(limit_name);
        Self { guarantee, outage, shadow_denied, ..admission }
    }
}
