//! The concurrency axis in this process.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::Decision;
use throttlekit_core::concurrency::Ending;

use super::{Axis, Call};
use crate::admit::{LimitInfo, got_a_slot};
use crate::guard::{KeyedPermit, OwnedPermit, Permit};
use crate::{Guard, KeyedGuard};

/// The limit of concurrent calls in this process: a [`Guard`] for all of them, or a [`KeyedGuard`] for each key.
#[derive(Debug, Default)]
pub struct LocalSlots(pub(super) Kind);

#[derive(Debug, Default)]
pub(super) enum Kind {
    /// No limit.
    #[default]
    Open,
    Guard(Arc<Guard>),
    Keyed(Arc<KeyedGuard>),
}

macro_rules! from_guard {
    ($($guard:ident => $kind:ident),+) => {$(
        impl From<$guard> for LocalSlots {
            fn from(guard: $guard) -> Self {
                Arc::new(guard).into()
            }
        }

        impl From<Arc<$guard>> for LocalSlots {
            fn from(guard: Arc<$guard>) -> Self {
                Self(Kind::$kind(guard))
            }
        }
    )+};
}

from_guard!(Guard => Guard, KeyedGuard => Keyed);

/// A held slot. Released once, when it is ended or dropped.
#[derive(Debug)]
pub(super) enum LocalSlot<'a> {
    None,
    Guard(Permit<'a>),
    Owned(OwnedPermit),
    Keyed(KeyedPermit),
}

/// The decision of the concurrency axis for a call, and the slot if it was admitted. No decision if concurrency is not
/// limited.
pub(super) type Entered<S> = (Option<Decision>, Option<S>);

impl LocalSlots {
    /// Acquires a slot for a call, if one is free now.
    #[inline]
    pub(super) fn enter(&self, call: &Call<'_>) -> Entered<LocalSlot<'_>> {
        match &self.0 {
            Kind::Open => (None, Some(LocalSlot::None)),
            Kind::Guard(guard) => match guard.try_acquire_as(call.of_priority()) {
                Ok(permit) => (Some(got_a_slot(guard.snapshot())), Some(LocalSlot::Guard(permit))),
                Err(full) => (Some(full.into()), None),
            },
            Kind::Keyed(guard) => enter_keyed(guard, call),
        }
    }

    /// Returns the limit of concurrent calls, in total or of each key; `None` if there is none.
    pub(super) fn limit(&self) -> Option<LimitInfo> {
        let limit = match &self.0 {
            Kind::Open => return None,
            Kind::Guard(guard) => guard.limit(),
            Kind::Keyed(guard) => guard.limit_of_key(),
        };
        Some(LimitInfo::new(Axis::Concurrency, limit.into(), None))
    }

    /// Like `enter`, with an owned slot.
    pub(super) fn enter_owned(&self, call: &Call<'_>) -> Entered<LocalSlot<'static>> {
        match &self.0 {
            Kind::Open => (None, Some(LocalSlot::None)),
            Kind::Guard(guard) => match guard.try_acquire_owned(call.of_priority()) {
                Ok(permit) => (Some(got_a_slot(guard.snapshot())), Some(LocalSlot::Owned(permit))),
                Err(full) => (Some(full.into()), None),
            },
            Kind::Keyed(guard) => enter_keyed(guard, call),
        }
    }
}

fn enter_keyed<'a>(guard: &KeyedGuard, call: &Call<'_>) -> Entered<LocalSlot<'a>> {
    match guard.try_acquire_as(call.key(), call.of_priority()) {
        Ok(permit) => (Some(got_a_slot(permit.snapshot())), Some(LocalSlot::Keyed(permit))),
        Err(full) => (Some(full.full().into()), None),
    }
}

impl LocalSlot<'_> {
    #[inline]
    pub(super) fn end(self, ending: Ending, latency: Option<Duration>) {
        match self {
            Self::None => {}
            Self::Guard(permit) => permit.end(ending, latency),
            Self::Owned(permit) => permit.end(ending, latency),
            Self::Keyed(permit) => permit.end(ending, latency),
        }
    }

    /// Returns how long the slot has been held, if it is owned and timed.
    pub(super) fn elapsed(&self) -> Option<Duration> {
        match self {
            Self::None | Self::Guard(_) => None,
            Self::Owned(permit) => permit.elapsed(),
            Self::Keyed(permit) => permit.elapsed(),
        }
    }
}
