//! Guards as `Admit`: they decide at once, or when a slot is free; the permit holds the slot.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::Ending;

use super::handle::Guard;
use super::keyed::KeyedGuard;
use super::permit::OwnedGuardPermit;
use super::single::decision;
use crate::Call;
use crate::admit::{Admission, Admit, Admitting, Axis, Denied, Held, LimitInfo, SharedPermit};
use crate::clock::Clock;
use crate::store_error::StoreError;

/// Uses the priority of a call; ignores its keys and its cost.
impl<C: Clock + 'static> Admit for Guard<C> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        Admitting::ready(admission(self.try_acquire_owned(call)))
    }

    fn admit_queued(&self, call: Call<'_>) -> Admitting {
        match self.try_acquire_owned(call) {
            Ok(permit) => Admitting::ready(admission(Ok(permit))),
            Err(_) => {
                let (guard, call) = (self.clone(), Call::from(()).priority(call.of_priority()));
                Admitting::pending(async move { admission(guard.acquire_owned(call).await) })
            }
        }
    }

    fn limits(&self) -> Vec<LimitInfo> {
        vec![LimitInfo::new(Axis::Concurrency, self.snapshot().0.into(), None)]
    }

    /// The end of work determines when a slot is free, and no clock.
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
}

/// Counts by the first key of a call, with its priority; ignores its cost.
impl<C: Clock + 'static> Admit for KeyedGuard<C> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        Admitting::ready(admission(self.try_acquire(call)))
    }

    fn admit_queued(&self, call: Call<'_>) -> Admitting {
        match self.try_acquire(call) {
            Ok(permit) => Admitting::ready(admission(Ok(permit))),
            Err(_) => {
                let (guard, key, priority) =
                    (self.clone(), Box::<[u8]>::from(call.key()), call.of_priority());
                Admitting::pending(async move {
                    admission(guard.acquire(Call::by(&key).priority(priority)).await)
                })
            }
        }
    }

    fn limits(&self) -> Vec<LimitInfo> {
        vec![LimitInfo::new(Axis::Concurrency, self.limit_of_key().into(), None)]
    }

    /// The end of work determines when a slot is free, and no clock.
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
}

/// Returns the admission with a slot, or the denial.
fn admission<C: Clock + 'static>(
    acquired: Result<OwnedGuardPermit<C>, Denied>,
) -> Result<Admission, StoreError> {
    Ok(match acquired {
        Ok(permit) => {
            let (limit, in_flight) = permit.snapshot();
            let decision = decision(true, limit, in_flight);
            Admission::of(Axis::Concurrency, decision, SharedPermit::new(permit))
        }
        Err(denied) => Admission::of(Axis::Concurrency, denied.decision, SharedPermit::none()),
    })
}

impl<C: Clock + 'static> Held for OwnedGuardPermit<C> {
    fn end(self: Box<Self>, ending: Ending, latency: Option<Duration>) {
        (*self).end(ending, latency);
    }

    fn elapsed(&self) -> Option<Duration> {
        self.elapsed()
    }
}
