//! A concurrency limit divided over nodes decides at once; the permit holds the slot.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::Ending;

use super::{Admission, Admit, Admitting, Axis, BoxFuture, Held, LimitInfo, SharedPermit, got_a_slot};
use crate::fleet::OwnedFleetPermit;
use crate::{Call, FleetGuard, Guarantee, LeaseClock};

/// Uses the priority of a call; ignores its keys and its cost.
impl<C: LeaseClock + 'static> Admit for FleetGuard<C> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        let admission = match self.try_acquire_owned(call.of_priority()) {
            Ok(permit) => {
                let (decision, guarantee) = (got_a_slot(self.snapshot()), permit.guarantee());
                let permit = SharedPermit::new(permit);
                Admission { guarantee, ..Admission::of(Axis::Concurrency, decision, permit) }
            }
            Err(not) => Admission {
                guarantee: self.guarantee(),
                ..Admission::of(Axis::Concurrency, not.into(), SharedPermit::none())
            },
        };
        Admitting::ready(Ok(admission))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        vec![LimitInfo::new(Axis::Concurrency, self.snapshot().0.into(), None)]
    }

    /// The end of work determines when a slot is free, and no clock.
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
}

impl<C: LeaseClock + 'static> Held for OwnedFleetPermit<C> {
    fn end(self: Box<Self>, ending: Ending, latency: Option<Duration>) {
        (*self).end(ending, latency);
    }

    fn elapsed(&self) -> Option<Duration> {
        self.elapsed()
    }

    fn guarantee(&self) -> Guarantee {
        self.guarantee()
    }

    fn is_fenced(&self) -> bool {
        self.is_fenced()
    }

    fn fenced(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.fenced())
    }
}
