//! A keyed guard decides at once; the permit holds the slots.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::Ending;

use super::guard::admission;
use super::{Admit, Admitting, Axis, Held, LimitInfo};
use crate::guard::{KeyedFull, KeyedPermit};
use crate::{Call, Clock, KeyHash, KeyedGuard};

/// Counts by the first key of a call, with its priority; ignores its cost.
impl<C: Clock + Clone + 'static, H: KeyHash + 'static> Admit for KeyedGuard<C, H> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        let slot = self.try_acquire_as(call.key(), call.of_priority()).map_err(KeyedFull::full);
        Admitting::ready(admission(slot, KeyedPermit::snapshot))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        vec![LimitInfo::new(Axis::Concurrency, self.limit_of_key().into(), None)]
    }

    /// The end of work determines when a slot is free, and no clock.
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
}

impl<C: Clock + 'static> Held for KeyedPermit<C> {
    fn end(self: Box<Self>, ending: Ending, latency: Option<Duration>) {
        (*self).end(ending, latency);
    }

    fn elapsed(&self) -> Option<Duration> {
        self.elapsed()
    }
}
