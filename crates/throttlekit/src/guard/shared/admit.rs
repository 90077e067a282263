//! Shared guards as `Admit`: divided they decide at once, otherwise after a round trip; the permit holds the slot.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::Ending;

use super::handle::SharedGuard;
use super::permit::SharedGuardPermit;
use crate::admit::{Admit, Admitting, Axis, BoxFuture, Held, LimitInfo, SharedPermit};
use crate::clock::LeaseClock;
use crate::store::StoreError;
use crate::{Call, Guarantee};

/// Uses the priority of a call if the limit is divided, and its first key if limits are per key; ignores its cost.
impl<C: LeaseClock + 'static> Admit for SharedGuard<C> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        if let Some(admission) = self.enter_at_once(&call) {
            return Admitting::ready(Ok(admission.map(SharedPermit::new)));
        }
        let (guard, key) = (self.clone(), Box::<[u8]>::from(call.key()));
        Admitting::pending(async move {
            let admission = guard.enter(&Call::by(&*key)).await?;
            Ok(admission.map(SharedPermit::new))
        })
    }

    fn limits(&self) -> Vec<LimitInfo> {
        vec![LimitInfo::new(Axis::Concurrency, self.stats().limit.into(), None)]
    }

    /// The end of work determines when a slot is free, and no clock.
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
}

impl<C: LeaseClock + 'static> Held for SharedGuardPermit<C> {
    fn end(self: Box<Self>, ending: Ending, latency: Option<Duration>) {
        (*self).end(ending, latency);
    }

    fn close(self: Box<Self>, ending: Ending) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move { Self::close(*self, ending).await.map(drop) })
    }

    fn elapsed(&self) -> Option<Duration> {
        Self::elapsed(self)
    }

    fn guarantee(&self) -> Guarantee {
        Self::guarantee(self)
    }

    fn is_fenced(&self) -> bool {
        Self::is_fenced(self)
    }

    fn fenced(&self) -> BoxFuture<'_, ()> {
        Box::pin(Self::fenced(self))
    }
}
