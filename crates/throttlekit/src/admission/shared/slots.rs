//! The concurrency axis, in this process or shared.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::Decision;
use throttlekit_core::concurrency::Ending;

use super::step::Later;
use crate::admission::slots::{LocalSlot, LocalSlots};
use crate::admission::{Axis, Call, slots};
use crate::admit::{Held, LimitInfo, got_a_slot};
use crate::fleet::OwnedFleetPermit;
use crate::store::{SlotStore, StoreError};
use crate::{FleetGuard, Guarantee, Guard, HeldSlot, KeyedGuard, LeaseClock, SharedSlots};

/// The limit of concurrent calls: a [`Guard`] or a [`KeyedGuard`] in this process, a [`FleetGuard`] whose limit several
/// nodes share, or [`SharedSlots`] for each key.
pub struct Slots(Kind);

enum Kind {
    Local(LocalSlots),
    Fleet(Arc<FleetGuard>),
    Held(Arc<dyn Holds>),
}

impl Default for Slots {
    fn default() -> Self {
        Self(Kind::Local(LocalSlots::default()))
    }
}

macro_rules! local {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Slots {
            fn from(guard: $kind) -> Self {
                Self(Kind::Local(guard.into()))
            }
        }
    )*};
}

local!(Guard, Arc<Guard>, KeyedGuard, Arc<KeyedGuard>);

impl From<FleetGuard> for Slots {
    fn from(guard: FleetGuard) -> Self {
        Arc::new(guard).into()
    }
}

impl From<Arc<FleetGuard>> for Slots {
    fn from(guard: Arc<FleetGuard>) -> Self {
        Self(Kind::Fleet(guard))
    }
}

impl<S: SlotStore, C: LeaseClock + 'static> From<SharedSlots<S, C>> for Slots {
    fn from(slots: SharedSlots<S, C>) -> Self {
        Self(Kind::Held(Arc::new(slots)))
    }
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
    Fleet(OwnedFleetPermit),
    Held(Box<dyn Held>),
}

/// Slots on any store.
trait Holds: Send + Sync {
    fn enter<'a>(&'a self, key: &'a [u8]) -> Later<'a, Result<Entry, StoreError>>;

    fn most(&self) -> u32;
}

impl<S: SlotStore, C: LeaseClock + 'static> Holds for SharedSlots<S, C> {
    fn enter<'a>(&'a self, key: &'a [u8]) -> Later<'a, Result<Entry, StoreError>> {
        Box::pin(async move {
            let admission = self.admit(key).await?;
            let held = |slot: HeldSlot<C>| Slot::Held(Box::new(slot));
            Ok(Entry {
                decision: Some(admission.decision),
                slot: admission.slot.map(held),
                guarantee: admission.guarantee,
                outage: admission.outage,
            })
        })
    }

    fn most(&self) -> u32 {
        Self::most(self)
    }
}

impl Slots {
    /// Returns the limit of concurrent calls; `None` if there is none.
    pub(super) fn limit(&self) -> Option<LimitInfo> {
        let limit = match &self.0 {
            Kind::Local(local) => return local.limit(),
            Kind::Fleet(guard) => guard.snapshot().0,
            Kind::Held(slots) => slots.most(),
        };
        Some(LimitInfo::new(Axis::Concurrency, limit.into(), None))
    }

    /// Acquires a slot for a call, if one is free.
    pub(super) async fn enter(&self, call: &Call<'_>) -> Result<Entry, StoreError> {
        match &self.0 {
            Kind::Local(local) => Ok(Entry::local(local.enter_owned(call))),
            Kind::Fleet(guard) => Ok(enter_fleet(guard, call)),
            Kind::Held(slots) => slots.enter(call.key()).await,
        }
    }
}

impl Entry {
    fn local((decision, slot): slots::Entered<LocalSlot<'static>>) -> Self {
        Self { decision, slot: slot.map(Slot::Local), guarantee: Guarantee::Exact, outage: None }
    }
}

fn enter_fleet(guard: &FleetGuard, call: &Call<'_>) -> Entry {
    match guard.try_acquire_owned(call.of_priority()) {
        Ok(permit) => Entry {
            decision: Some(got_a_slot(guard.snapshot())),
            guarantee: permit.guarantee(),
            slot: Some(Slot::Fleet(permit)),
            outage: None,
        },
        Err(not) => {
            Entry { decision: Some(not.into()), slot: None, guarantee: guard.guarantee(), outage: None }
        }
    }
}

impl Slot {
    pub(super) fn end(self, ending: Ending, latency: Option<Duration>) {
        match self {
            Self::Local(slot) => slot.end(ending, latency),
            Self::Fleet(permit) => permit.end(ending, latency),
            Self::Held(slot) => drop(slot),
        }
    }

    /// Releases the slot and waits until that is done: no work was done.
    pub(super) async fn give_back(self) {
        self.close(Ending::Ignored).await;
    }

    /// Ends the slot and waits until the store is updated.
    pub(super) async fn close(self, ending: Ending) {
        match self {
            // A slot whose release is uncertain is released when its lease expires.
            Self::Held(slot) => drop(slot.close(ending).await),
            other => other.end(ending, None),
        }
    }

    /// Returns how long the slot has been held, if it is timed.
    pub(super) fn elapsed(&self) -> Option<Duration> {
        match self {
            Self::Local(slot) => slot.elapsed(),
            Self::Fleet(permit) => permit.elapsed(),
            Self::Held(slot) => slot.elapsed(),
        }
    }

    /// Checks whether the slot may be held by others.
    pub(super) fn is_fenced(&self) -> bool {
        match self {
            Self::Local(_) => false,
            Self::Fleet(permit) => permit.is_fenced(),
            Self::Held(slot) => slot.is_fenced(),
        }
    }

    /// Waits until the slot may be held by others: forever if that cannot happen.
    pub(super) async fn fenced(&self) {
        match self {
            Self::Local(_) => std::future::pending().await,
            Self::Fleet(permit) => permit.fenced().await,
            Self::Held(slot) => slot.fenced().await,
        }
    }
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Kind::Local(local) => local.fmt(f),
            Kind::Fleet(guard) => guard.fmt(f),
            Kind::Held(_) => f.write_str("SharedSlots"),
        }
    }
}
