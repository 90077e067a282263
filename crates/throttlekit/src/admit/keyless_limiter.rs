//! A keyless limiter decides at once and holds nothing.

use throttlekit_core::Timestamp;

use super::{Admission, Admit, Admitting, Axis, LimitInfo, SharedPermit};
use crate::Call;
use crate::clock::Clock;
use crate::limiter::KeylessLimiter;

/// Ignores the keys of a call.
impl<C: Clock + 'static> Admit for KeylessLimiter<C> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        Admitting::ready(Ok(Admission::of(Axis::Rate, self.check(call), SharedPermit::none())))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        vec![LimitInfo::of(Axis::Rate, self.limit())]
    }

    fn now(&self) -> Timestamp {
        self.now()
    }
}
