//! Proof of admission to a shared guard, and its end when others may hold the slot.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::Ending;

use crate::Guarantee;
use crate::clock::{DefaultLeaseClock, LeaseClock};
use crate::fence::{Fenced, run_unless_fenced};
use crate::guard::divided::OwnedSharePermit;
use crate::guard::slot_leases::HeldSlot;
use crate::store::StoreError;

/// A slot of a [`SharedGuard`](crate::SharedGuard), held while work runs. Released exactly once, however the work ends.
///
/// Work that outlives the lease is fenced: others may hold the slot by then. [`run`](Self::run) stops it in time. What
/// the work did just before the clock was read cannot be undone: one step of it may end after the fence.
///
/// Dropped without an outcome it counts as [`ignored`](Self::ignored), or as [`dropped`](Self::dropped) if the thread is
/// panicking. A slot on the store is released by a background task; if the process ends before that, it is free when
/// its lease expires.
#[must_use = "dropping it releases the slot"]
pub struct SharedGuardPermit<C: LeaseClock = DefaultLeaseClock>(Held<C>);

enum Held<C: LeaseClock> {
    Share(OwnedSharePermit<C>),
    Slot(HeldSlot, Guarantee),
}

impl<C: LeaseClock> SharedGuardPermit<C> {
    pub(super) fn share(permit: OwnedSharePermit<C>) -> Self {
        Self(Held::Share(permit))
    }

    pub(super) fn slot(slot: HeldSlot, guarantee: Guarantee) -> Self {
        Self(Held::Slot(slot, guarantee))
    }

    /// Returns the guarantee of the admission: [`Local`](Guarantee::Local) for a slot of a disconnected node's local
    /// share, otherwise that of the store.
    pub fn guarantee(&self) -> Guarantee {
        match &self.0 {
            Held::Share(permit) => permit.guarantee(),
            Held::Slot(_, guarantee) => *guarantee,
        }
    }

    /// Returns how long the slot has been held, if it is timed.
    pub(crate) fn elapsed(&self) -> Option<Duration> {
        match &self.0 {
            Held::Share(permit) => permit.elapsed(),
            Held::Slot(..) => None,
        }
    }

    /// Returns the time by which the work must have ended, by the guard's clock, unless a heartbeat extends it. Each
    /// call may return a later time. `None` for a slot of a disconnected node's local share.
    ///
    /// If timers may be late, pass this time to the service that does the work, and let it reject what arrives later.
    pub fn deadline(&self) -> Option<Timestamp> {
        match &self.0 {
            Held::Share(permit) => permit.deadline(),
            Held::Slot(slot, _) => Some(slot.deadline()),
        }
    }

    /// Checks whether the work must have ended by now. Once it must, it always must. Check it before every step that
    /// must not be done twice.
    pub fn is_fenced(&self) -> bool {
        match &self.0 {
            Held::Share(permit) => permit.is_fenced(),
            Held::Slot(slot, _) => slot.is_fenced(),
        }
    }

    /// Waits until the work must have ended: forever while this process reaches the store.
    pub async fn fenced(&self) {
        match &self.0 {
            Held::Share(permit) => permit.fenced().await,
            Held::Slot(slot, _) => slot.fenced().await,
        }
    }

    /// Runs the work until it is done or must end; then the future is dropped.
    ///
    /// The clock is read before every step, so that a process which was paused past its deadline does not take another.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Fenced> {
        run_unless_fenced(work, || self.is_fenced(), self.fenced()).await
    }

    endings!();

    pub(crate) fn end(self, ending: Ending, latency: Option<Duration>) {
        match self.0 {
            Held::Share(permit) => permit.end(ending, latency),
            Held::Slot(slot, _) => drop(slot),
        }
    }

    /// Ends the work, waits until the slot is released on the store, and returns whether it was held to the end. If
    /// this is dropped while it waits, the slot is released all the same.
    ///
    /// An error means that it is unknown whether the slot was released: the store did not respond, or no renewer was
    /// left to call it. Then it is free when its lease expires.
    pub async fn close(self, ending: Ending) -> Result<bool, StoreError> {
        match self.0 {
            Held::Slot(slot, _) => slot.release().await,
            Held::Share(permit) => {
                let held = !permit.is_fenced();
                permit.end(ending, None);
                Ok(held)
            }
        }
    }
}

debug_fields!([C: LeaseClock] SharedGuardPermit<C>, |it| deadline = it.deadline());
