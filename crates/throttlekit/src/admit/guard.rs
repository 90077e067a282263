//! A guard decides at once, or when a slot is free; the permit holds the slot.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::concurrency::Ending;
use throttlekit_core::{Decision, Retry, Timestamp};

use super::{Admission, Admit, Admitting, Axis, Held, LimitInfo, SharedPermit, StoreError};
use crate::guard::{Full, OwnedPermit};
use crate::{Call, Clock, Guard};

/// Uses the priority of a call; ignores its keys and its cost.
impl<C: Clock + 'static> Admit for Arc<Guard<C>> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        Admitting::ready(admission(self.try_acquire_owned(call.of_priority()), |_| self.snapshot()))
    }

    fn admit_queued(&self, call: Call<'_>) -> Admitting {
        let priority = call.of_priority();
        match self.try_acquire_owned(priority) {
            Ok(permit) => Admitting::ready(admission(Ok(permit), |_| self.snapshot())),
            Err(_) => {
                let guard = Self::clone(self);
                Admitting::pending(async move {
                    let permit = Self::clone(&guard).acquire_owned(priority).await;
                    admission(permit, |_| guard.snapshot())
                })
            }
        }
    }

    fn limits(&self) -> Vec<LimitInfo> {
        vec![LimitInfo::new(Axis::Concurrency, self.limit().into(), None)]
    }

    /// The end of work determines when a slot is free, and no clock.
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
}

/// Returns the admission with a slot, or the denial. `seen` returns the limit and the number in flight.
pub(super) fn admission<P: Held>(
    slot: Result<P, Full>,
    seen: impl FnOnce(&P) -> (u32, u32),
) -> Result<Admission, StoreError> {
    Ok(match slot {
        Ok(permit) => {
            let decision = got_a_slot(seen(&permit));
            Admission::of(Axis::Concurrency, decision, SharedPermit::new(permit))
        }
        Err(full) => Admission::of(Axis::Concurrency, full.into(), SharedPermit::none()),
    })
}

/// Returns the decision for an admitted call, from the limit and the number in flight.
#[inline]
pub(crate) fn got_a_slot((limit, in_flight): (u32, u32)) -> Decision {
    Decision {
        allowed: true,
        limit: limit.into(),
        remaining: limit.saturating_sub(in_flight).into(),
        reset_at: Timestamp::EPOCH,
        retry_after: Retry::Now,
    }
}

impl<C: Clock + 'static> Held for OwnedPermit<C> {
    fn end(self: Box<Self>, ending: Ending, latency: Option<Duration>) {
        (*self).end(ending, latency);
    }

    fn elapsed(&self) -> Option<Duration> {
        self.elapsed()
    }
}
