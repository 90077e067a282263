//! The concurrency axis, in this process or shared.

use std::time::Duration;

use throttlekit_core::Decision;
use throttlekit_core::concurrency::Ending;

use crate::admit::LimitInfo;
use crate::allowed::Allowed;
use crate::guard::{KeyedGuard, SharedGuardPermit};
use crate::policy::Call;
use crate::policy::slots::{LocalSlot, LocalSlots};
use crate::store::StoreError;
use crate::{Axis, Guarantee, Guard, SharedGuard};

/// The limit of concurrent calls: a [`Guard`] or a [`KeyedGuard`] in this process, or a [`SharedGuard`].
#[derive(Debug)]
pub(super) struct Slots(Kind);

#[derive(Debug)]
enum Kind {
    Local(LocalSlots),
    Shared(SharedGuard),
}

impl Default for Slots {
    fn default() -> Self {
        Self(Kind::Local(LocalSlots::default()))
    }
}

impl From<Guard> for Slots {
    fn from(guard: Guard) -> Self {
        Self(Kind::Local(guard.into()))
    }
}

impl From<KeyedGuard> for Slots {
    fn from(guard: KeyedGuard) -> Self {
        Self(Kind::Local(guard.into()))
    }
}

impl From<SharedGuard> for Slots {
    fn from(guard: SharedGuard) -> Self {
        Self(Kind::Shared(guard))
    }
}

/// The way in which a call takes a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entrance {
    /// If one is free now.
    AtOnce,
    /// Now, or after waiting in the guard's queue, if it has one.
    Queued,
}

/// The decision of the concurrency axis for a call.
pub(super) struct Entry {
    /// `None` if concurrency is not limited.
    pub(super) decision: Option<Decision>,
    pub(super) slot: Option<Slot>,
    pub(super) guarantee: Guarantee,
    pub(super) outage: Option<StoreError>,
}

/// A held slot. Released once, when it is ended or dropped.
pub(super) enum Slot {
    Local(LocalSlot<'static>),
    Shared(SharedGuardPermit),
}

impl Slots {
    /// Returns the limit of concurrent calls; `None` if there is none.
    pub(super) fn limit(&self) -> Option<LimitInfo> {
        match &self.0 {
            Kind::Local(local) => local.limit(),
            Kind::Shared(guard) => Some(LimitInfo::new(Axis::Concurrency, guard.stats().limit.into(), None)),
        }
    }

    /// Acquires a slot for a call, if one is free.
    pub(super) async fn enter(&self, call: &Call<'_>, entrance: Entrance) -> Result<Entry, StoreError> {
        match &self.0 {
            Kind::Local(local) => {
                let entered = match entrance {
                    Entrance::AtOnce => local.enter_owned(call),
                    Entrance::Queued => local.enter_queued(call).await,
                };
                let (decision, slot) = match entered {
                    Ok((allowed, slot)) => (allowed.map(Allowed::decision), Some(Slot::Local(slot))),
                    Err(denied) => (Some(denied), None),
                };
                Ok(Entry { decision, slot, guarantee: Guarantee::Exact, outage: None })
            }
            Kind::Shared(guard) => {
                let entered = match entrance {
                    Entrance::AtOnce => guard.enter(call).await?,
                    Entrance::Queued => guard.acquire(*call).await?,
                };
                Ok(Entry {
                    decision: Some(entered.decision),
                    slot: entered.permit.map(Slot::Shared),
                    guarantee: entered.guarantee,
                    outage: entered.outage,
                })
            }
        }
    }
}

impl Slot {
    pub(super) fn end(self, ending: Ending, latency: Option<Duration>) {
        match self {
            Self::Local(slot) => slot.end(ending, latency),
            Self::Shared(permit) => permit.end(ending, latency),
        }
    }

    /// Releases the slot and waits until that is done: no work was done.
    pub(super) async fn give_back(self) {
        self.close(Ending::Ignored).await;
    }

    /// Ends the slot and waits until the store is updated.
    pub(super) async fn close(self, ending: Ending) {
        match self {
            Self::Local(slot) => slot.end(ending, None),
            // A slot whose release is uncertain is released when its lease expires.
            Self::Shared(permit) => drop(permit.close(ending).await),
        }
    }

    /// Returns how long the slot has been held, if it is timed.
    pub(super) fn elapsed(&self) -> Option<Duration> {
        match self {
            Self::Local(slot) => slot.elapsed(),
            Self::Shared(permit) => permit.elapsed(),
        }
    }

    /// Checks whether the slot may be held by others.
    pub(super) fn is_fenced(&self) -> bool {
        match self {
            Self::Local(_) => false,
            Self::Shared(permit) => permit.is_fenced(),
        }
    }

    /// Waits until the slot may be held by others: forever if that cannot happen.
    pub(super) async fn fenced(&self) {
        match self {
            Self::Local(_) => std::future::pending().await,
            Self::Shared(permit) => permit.fenced().await,
        }
    }
}
