//! Shared slots decide after a round trip; the permit holds the slot.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::Ending;

use super::{Admission, Admit, Admitting, Axis, BoxFuture, Held, LimitInfo, SharedPermit, StoreError};
use crate::store::SlotStore;
use crate::{Call, HeldSlot, LeaseClock, SharedSlots};

/// Counts by the first key of a call; ignores its cost.
impl<S: SlotStore, C: LeaseClock + 'static> Admit for SharedSlots<S, C> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        let (slots, key) = (self.clone(), Box::<[u8]>::from(call.key()));
        Admitting::pending(async move {
            let answer = slots.admit(key).await?;
            let permit = answer.slot.map_or(SharedPermit::none(), SharedPermit::new);
            let mut admission = Admission::of(Axis::Concurrency, answer.decision, permit);
            (admission.guarantee, admission.outage) = (answer.guarantee, answer.outage);
            Ok(admission)
        })
    }

    fn limits(&self) -> Vec<LimitInfo> {
        vec![LimitInfo::new(Axis::Concurrency, self.most().into(), None)]
    }

    /// The end of work determines when a slot is free, and no clock.
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
}

impl<C: LeaseClock + 'static> Held for HeldSlot<C> {
    /// A slot learns nothing from how its work ended.
    fn end(self: Box<Self>, _: Ending, _: Option<Duration>) {}

    fn close(self: Box<Self>, _: Ending) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move { Self::release(*self).await.map(drop) })
    }

    fn is_fenced(&self) -> bool {
        Self::is_fenced(self)
    }

    fn fenced(&self) -> BoxFuture<'_, ()> {
        Box::pin(Self::fenced(self))
    }
}
