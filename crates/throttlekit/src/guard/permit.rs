//! Proof of admission, held while work runs.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Ending, Sample};

use super::count::Entry;
use super::overflow::Guest;
use super::single::Single;
use crate::clock::{BootClock, Clock};

/// A slot of a [`Guard`](super::Guard), held while work runs. Released exactly once, however the work ends.
///
/// Report the outcome of the work. Dropped without an outcome it counts as [`ignored`](Self::ignored), the caller is
/// gone; or as [`dropped`](Self::dropped) if the thread is panicking; so one panic drops every permit that its task
/// holds.
#[must_use = "dropping it releases the slot"]
pub struct GuardPermit<'a, C: Clock = BootClock> {
    guard: &'a Single<C>,
    slot: Slot,
}

/// An owned [`GuardPermit`], for tasks and streams; or one of a [`KeyedGuard`](super::KeyedGuard).
#[must_use = "dropping it releases the slot"]
pub struct OwnedGuardPermit<C: Clock = BootClock> {
    // In drop order.
    own: OwnedSlot<C>,
    /// In a box: a permit with one slot should not be larger for it.
    more: Option<Box<More<C>>>,
}

/// A slot, and its guard.
pub(super) struct OwnedSlot<C: Clock> {
    /// `None` once it has ended.
    guard: Option<Arc<Single<C>>>,
    slot: Slot,
}

/// The holdings of a key beside its own slot.
pub(super) struct More<C: Clock> {
    // In drop order: the slot before the key's entry in the shared limit.
    pub(super) total: Option<OwnedSlot<C>>,
    pub(super) guest: Option<Guest<C>>,
}

impl<'a, C: Clock> GuardPermit<'a, C> {
    #[inline(always)]
    pub(super) fn new(guard: &'a Single<C>, slot: Slot) -> Self {
        Self { guard, slot }
    }

    /// Returns how long the slot has been held, if this permit is timed: for [`success_after`](Self::success_after), if
    /// the slot is held longer than the work to be sampled.
    pub fn elapsed(&self) -> Option<Duration> {
        self.guard.elapsed(self.slot)
    }

    endings!();

    /// Ends the permit. Forgets it first: a waker that panics must not make it end twice.
    #[inline(always)]
    pub(crate) fn end(self, ending: Ending, latency: Option<Duration>) {
        let guard = self.guard;
        guard.end(self.into_slot(), ending, latency);
    }

    /// Converts it into an owned slot.
    #[cfg(feature = "store")]
    pub(super) fn into_owned(self, guard: Arc<Single<C>>) -> OwnedSlot<C> {
        debug_assert!(std::ptr::eq(self.guard, &raw const *guard), "a slot of another guard");
        OwnedSlot::new(guard, self.into_slot())
    }

    /// Takes the slot out of the permit; the caller must end it.
    #[inline(always)]
    pub(super) fn into_slot(self) -> Slot {
        let slot = self.slot;
        std::mem::forget(self);
        slot
    }
}

impl<C: Clock> Drop for GuardPermit<'_, C> {
    #[inline]
    fn drop(&mut self) {
        self.guard.end(self.slot, ending_without_outcome(), None);
    }
}

impl<C: Clock> OwnedGuardPermit<C> {
    #[inline]
    pub(super) fn new(own: OwnedSlot<C>) -> Self {
        Self { own, more: None }
    }

    pub(super) fn keyed(own: OwnedSlot<C>, more: More<C>) -> Self {
        let none = more.total.is_none() && more.guest.is_none();
        Self { own, more: (!none).then(|| Box::new(more)) }
    }

    /// Returns how long the slot has been held, if this permit is timed; see [`GuardPermit::elapsed`].
    pub fn elapsed(&self) -> Option<Duration> {
        self.own.elapsed()
    }

    /// Returns the maximum number in flight and the number in flight: of the key, if limits are per key.
    pub(crate) fn snapshot(&self) -> (u32, u32) {
        self.own.guard.as_ref().map_or((0, 0), |guard| guard.snapshot())
    }

    endings!();

    /// Ends all slots, and then removes the key from the shared limit.
    pub(crate) fn end(self, ending: Ending, latency: Option<Duration>) {
        let Self { own, more } = self;
        own.end(ending, latency);
        if let Some(more) = more {
            more.end(ending, latency);
        }
    }
}

impl<C: Clock> OwnedSlot<C> {
    pub(super) fn new(guard: Arc<Single<C>>, slot: Slot) -> Self {
        Self { guard: Some(guard), slot }
    }

    pub(super) fn elapsed(&self) -> Option<Duration> {
        self.guard.as_ref()?.elapsed(self.slot)
    }

    /// Restarts the time measurement: the work begins only now.
    pub(super) fn restart(&mut self) {
        if let Some(guard) = self.guard.as_ref().filter(|_| self.slot.is_timed()) {
            self.slot.started_nanos = guard.now().as_nanos();
        }
    }

    pub(super) fn end(mut self, ending: Ending, latency: Option<Duration>) {
        self.end_once(ending, latency);
    }

    fn end_once(&mut self, ending: Ending, latency: Option<Duration>) {
        if let Some(guard) = self.guard.take() {
            guard.end(self.slot, ending, latency);
        }
    }
}

impl<C: Clock> Drop for OwnedSlot<C> {
    fn drop(&mut self) {
        self.end_once(ending_without_outcome(), None);
    }
}

impl<C: Clock> More<C> {
    fn end(self, ending: Ending, latency: Option<Duration>) {
        let Self { total, guest } = self;
        total.into_iter().for_each(|total| total.end(ending, latency));
        drop(guest);
    }
}

debug_fields!([C: Clock] GuardPermit<'_, C>, |it| elapsed = it.elapsed());
debug_fields!([C: Clock] OwnedGuardPermit<C>, |it| elapsed = it.elapsed());

/// Returns the outcome of a permit that is dropped without one.
#[inline(always)]
pub(crate) fn ending_without_outcome() -> Ending {
    if std::thread::panicking() { Ending::Dropped } else { Ending::Ignored }
}

/// Data of an admission, if its latency is sampled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    started_nanos: u64,
    in_flight: u32,
    allowed: u32,
}

/// No clock reads this late.
const UNTIMED: u64 = u64::MAX;

impl Slot {
    #[inline(always)]
    pub(super) fn timed(now: Timestamp, entry: Entry) -> Self {
        Self { started_nanos: now.as_nanos(), in_flight: entry.in_flight, allowed: entry.allowed }
    }

    #[inline(always)]
    pub(super) fn untimed() -> Self {
        Self { started_nanos: UNTIMED, in_flight: 0, allowed: 0 }
    }

    #[inline(always)]
    pub(super) fn is_timed(self) -> bool {
        self.started_nanos != UNTIMED
    }

    /// Returns the sample of a timed slot when its work is done: the measured latency, unless the caller supplies one.
    pub(super) fn sample(self, latency: Option<Duration>, now: Timestamp) -> Sample {
        let took = || now.since(Timestamp::from_nanos(self.started_nanos));
        let Self { in_flight, allowed, .. } = self;
        Sample { latency: latency.unwrap_or_else(took), in_flight, allowed }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_of_the_time_that_passed_or_of_the_callers_and_of_the_load_at_admission() {
        let entry = Entry { in_flight: 3, limit: 9, allowed: 7, turn: 0 };
        let slot = Slot::timed(Timestamp::from_nanos(100), entry);
        let took = |latency| Sample { latency, in_flight: 3, allowed: 7 };
        assert_eq!(slot.sample(None, Timestamp::from_nanos(101)), took(Duration::from_nanos(1)));
        let told = Duration::from_millis(5);
        assert_eq!(slot.sample(Some(told), Timestamp::from_nanos(101)), took(told));
        assert!(slot.is_timed() && !Slot::untimed().is_timed());
    }

    #[test]
    fn a_permit_is_three_words_and_an_owned_one_four() {
        assert_eq!(size_of::<GuardPermit<'_>>(), 24);
        assert_eq!(size_of::<OwnedGuardPermit>(), 32);
    }
}
