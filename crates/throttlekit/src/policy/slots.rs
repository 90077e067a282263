//! The concurrency axis in this process.

use std::time::Duration;

use throttlekit_core::concurrency::Ending;
use throttlekit_core::{Decision, Timestamp};

use super::{Axis, Call};
use crate::admit::{Denied, LimitInfo};
use crate::allowed::Allowed;
use crate::guard::{GuardPermit, KeyedGuard, OwnedGuardPermit};
use crate::{BuildError, Concurrency, Guard};

/// The limit of concurrent calls in this process: a [`Guard`] for all of them, or a [`KeyedGuard`] for each key.
#[derive(Debug, Default)]
pub struct LocalSlots(Kind);

#[derive(Debug, Default)]
enum Kind {
    /// No limit.
    #[default]
    Open,
    Guard(Guard),
    Keyed(KeyedGuard),
}

impl From<Guard> for LocalSlots {
    fn from(guard: Guard) -> Self {
        Self(Kind::Guard(guard))
    }
}

impl From<KeyedGuard> for LocalSlots {
    fn from(guard: KeyedGuard) -> Self {
        Self(Kind::Keyed(guard))
    }
}

/// A held slot. Released once, when it is ended or dropped.
#[derive(Debug)]
pub(super) enum LocalSlot<'a> {
    None,
    Guard(GuardPermit<'a>),
    Owned(OwnedGuardPermit),
}

/// The slot of a call and the decision of the concurrency axis, or the denial. No decision if concurrency is not limited.
pub(super) type Entered<S> = Result<(Option<Allowed>, S), Decision>;

/// The result of [`LocalSlots::enter`], short enough to stay in registers.
pub(super) enum Entrance<'a> {
    /// A slot, and the decision. No decision if concurrency is not limited.
    Slot(Option<Allowed>, LocalSlot<'a>),
    /// No slot is free: the limit and the number in flight.
    Full((u32, u32)),
    /// Each key has a guard: [`LocalSlots::enter_owned`] enters it.
    ByKey,
}

impl LocalSlots {
    /// Creates the guard of a policy.
    pub(super) fn new(limit: Concurrency) -> Result<Self, BuildError> {
        Ok(if limit.is_per_key() { KeyedGuard::new(limit)?.into() } else { Guard::new(limit)?.into() })
    }

    /// Acquires a slot for a call, if one is free now.
    #[inline(always)]
    pub(super) fn enter(&self, call: &Call<'_>) -> Entrance<'_> {
        match &self.0 {
            Kind::Open => Entrance::Slot(None, LocalSlot::None),
            Kind::Guard(guard) => match guard.try_acquire_seen(call) {
                Ok((permit, seen)) => Entrance::Slot(Some(allowed(seen)), LocalSlot::Guard(permit)),
                Err(seen) => Entrance::Full(seen),
            },
            Kind::Keyed(_) => Entrance::ByKey,
        }
    }

    /// Returns the limit of concurrent calls, in total or of each key; `None` if there is none.
    pub(super) fn limit(&self) -> Option<LimitInfo> {
        let limit = match &self.0 {
            Kind::Open => return None,
            Kind::Guard(guard) => guard.snapshot().0,
            Kind::Keyed(guard) => guard.limit_of_key(),
        };
        Some(LimitInfo::new(Axis::Concurrency, limit.into(), None))
    }

    /// Acquires an owned slot for a call, if one is free now.
    pub(super) fn enter_owned(&self, call: &Call<'_>) -> Entered<LocalSlot<'static>> {
        match &self.0 {
            Kind::Open => Ok((None, LocalSlot::None)),
            Kind::Guard(guard) => owned(guard.try_acquire_owned(*call)),
            Kind::Keyed(guard) => owned(guard.try_acquire(*call)),
        }
    }

    /// Like `enter_owned`, now or after waiting in the guard's queue.
    #[cfg(feature = "store")]
    pub(super) async fn enter_queued(&self, call: &Call<'_>) -> Entered<LocalSlot<'static>> {
        match &self.0 {
            Kind::Open => Ok((None, LocalSlot::None)),
            Kind::Guard(guard) => owned(guard.clone().acquire_owned(*call).await),
            Kind::Keyed(guard) => owned(guard.acquire(*call).await),
        }
    }
}

fn owned<'a>(acquired: Result<OwnedGuardPermit, Denied>) -> Entered<LocalSlot<'a>> {
    match acquired {
        Ok(permit) => Ok((Some(allowed(permit.snapshot())), LocalSlot::Owned(permit))),
        Err(denied) => Err(denied.decision),
    }
}

/// Returns the decision on an admitted call, given the limit and the number in flight.
#[inline(always)]
fn allowed((limit, in_flight): (u32, u32)) -> Allowed {
    let remaining = limit.saturating_sub(in_flight).into();
    Allowed { limit: limit.into(), remaining, reset_at: Timestamp::EPOCH }
}

impl LocalSlot<'_> {
    #[inline(always)]
    pub(super) fn end(self, ending: Ending, latency: Option<Duration>) {
        match self {
            Self::None => {}
            Self::Guard(permit) => permit.end(ending, latency),
            Self::Owned(permit) => permit.end(ending, latency),
        }
    }
    /// Returns how long the slot has been held, if it is owned and timed.
    pub(super) fn elapsed(&self) -> Option<Duration> {
        match self {
            Self::None | Self::Guard(_) => None,
            Self::Owned(permit) => permit.elapsed(),
        }
    }
}
