//! A limiter decides at once and holds nothing.

use throttlekit_core::Timestamp;

use super::{Admission, Admit, Admitting, Axis, LimitInfo, SharedPermit};
use crate::clock::Clock;
use crate::hash::KeyHash;
use crate::{Call, Limiter};

impl<C: Clock + 'static, H: KeyHash + 'static> Admit for Limiter<C, H> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        Admitting::ready(Ok(Admission::of(Axis::Rate, self.check(call), SharedPermit::none())))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.limits().map(|limit| LimitInfo::of(Axis::Rate, limit)).collect()
    }

    fn now(&self) -> Timestamp {
        self.now()
    }
}
