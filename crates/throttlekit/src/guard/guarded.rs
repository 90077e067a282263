//! What users hold: at most so many at a time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use throttlekit_core::concurrency::{Ceiling, Ending};
use throttlekit_core::{Decision, Retry, Timestamp};

use super::builder::GuardBuilder;
use super::class::Class;
use super::count::{Entry, Seen};
use super::permit::{OwnedPermit, Permit, Slot};
use super::slots::Slots;
use super::tuner::{Learnt, Own, Tuner};
use super::wait::Acquire;
use crate::{BootClock, Clock};

/// At most so many at a time, in this process: a fixed number, or one that follows how long work takes.
///
/// [`try_acquire`](Self::try_acquire) is one load and one compare-and-swap where nobody waits. See the
/// [module](super) for what is promised.
///
/// ```
/// use throttlekit::Guard;
///
/// let guard = Guard::fixed(1);
/// let permit = guard.try_acquire().expect("nobody is there yet");
/// assert_eq!(guard.try_acquire().unwrap_err().in_flight, 1);
/// permit.success();
/// assert!(guard.try_acquire().is_ok());
/// ```
pub struct Guard<C = BootClock> {
    slots: Slots,
    tuner: Tuner,
    clock: C,
}

/// Why nobody was let in: so many already were.
///
/// Below the limit where the rest is kept for classes before this one, or for those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// How many may be in flight.
    pub limit: u32,
    /// How many were, at the same instant.
    pub in_flight: u32,
}

/// A guard at one instant, for dashboards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardStats {
    /// How many may be in flight.
    pub limit: u32,
    /// How many are.
    pub in_flight: u32,
    /// How many wait.
    pub waiting: u32,
    /// The limit before [`cap`](Guard::cap): fixed, or inferred here.
    pub own_limit: u32,
    /// Endings whose latency was learnt.
    pub samples: u64,
    /// Endings that were drops.
    pub dropped: u64,
}

impl Guard {
    /// At most `limit` at a time; 134 million are the most that can be counted.
    pub fn fixed(limit: u32) -> Self {
        Self::builder(limit).build()
    }

    /// As many at a time as keeps latency low, within the bounds of the ceiling.
    pub fn adaptive(ceiling: Ceiling) -> Self {
        Self::builder(ceiling).build()
    }

    /// Everything that can be chosen, over a fixed limit or a [`Ceiling`].
    pub fn builder(limit: impl Into<super::GuardLimit>) -> GuardBuilder {
        GuardBuilder::new(limit.into())
    }
}

impl<C: Clock> Guard<C> {
    pub(super) fn from_parts(slots: Slots, own: Own, clock: C) -> Self {
        Self { slots, tuner: Tuner::new(own), clock }
    }

    /// A slot of the first class, if there is one now.
    #[inline]
    pub fn try_acquire(&self) -> Result<Permit<'_, C>, Full> {
        match self.slots.enter_first() {
            Ok(entry) => Ok(Permit::new(self, self.slot(entry))),
            Err(seen) => Err(Full::at(seen)),
        }
    }

    /// The same, and whether it is the first of sixteen turns: for who counts admissions.
    #[cfg(feature = "store")]
    #[inline(always)]
    pub(crate) fn try_acquire_counted(&self, class: Class) -> Result<(Permit<'_, C>, bool), Full> {
        match self.slots.enter(class) {
            Ok(entry) => Ok((Permit::new(self, self.slot(entry)), entry.turn == 0)),
            Err(seen) => Err(Full::at(seen)),
        }
    }

    /// A slot of a class, if there is one for it now.
    #[inline]
    pub fn try_acquire_as(&self, class: Class) -> Result<Permit<'_, C>, Full> {
        match self.slots.enter(class) {
            Ok(entry) => Ok(Permit::new(self, self.slot(entry))),
            Err(seen) => Err(Full::at(seen)),
        }
    }

    /// The same in a permit that lives on its own.
    #[inline]
    pub fn try_acquire_owned(self: &Arc<Self>, class: Class) -> Result<OwnedPermit<C>, Full> {
        Arc::clone(self).try_into_permit(class)
    }

    pub(super) fn try_into_permit(self: Arc<Self>, class: Class) -> Result<OwnedPermit<C>, Full> {
        match self.slots.enter(class) {
            Ok(entry) => {
                let slot = self.slot(entry);
                Ok(OwnedPermit::new(self, slot))
            }
            Err(seen) => Err(Full::at(seen)),
        }
    }

    /// A slot of a class, now or when it is this ask's turn. [`Full`] at once where as many wait as may.
    ///
    /// The future can be dropped at any time: it leaves the line, and a slot that was its own already goes to the next.
    /// How deep the line may be is the builder's [`depth_max`](GuardBuilder::depth_max), zero unless stated.
    pub fn acquire(&self, class: Class) -> Acquire<'_, C> {
        Acquire::new(self, class)
    }

    /// The same in a permit that lives on its own.
    pub async fn acquire_owned(self: Arc<Self>, class: Class) -> Result<OwnedPermit<C>, Full> {
        let slot = self.acquire(class).await?.into_slot();
        Ok(OwnedPermit::new(self, slot))
    }

    /// A slot of a class within `wait`, measured by tokio's timer; [`Full`] when it has passed.
    #[cfg(feature = "wait")]
    pub async fn acquire_within(&self, class: Class, wait: Duration) -> Result<Permit<'_, C>, Full> {
        match tokio::time::timeout(wait, self.acquire(class)).await {
            Ok(answer) => answer,
            Err(_) => Err(Full::at(self.slots.count.seen())),
        }
    }

    /// At most so many at a time, whatever this guard would allow by itself: the limit in force is the least of both.
    ///
    /// Those in flight stay. Zero shuts the door.
    pub fn cap(&self, share: u32) {
        self.tuner.cap(share, self.clock.now(), &self.slots);
    }

    /// A share of a ceiling that others use as well, by what this guard infers of all of it.
    #[cfg(feature = "store")]
    pub(crate) fn cap_of(&self, share: u32, ceiling: u32) {
        self.tuner.cap_of(share, ceiling, self.clock.now(), &self.slots);
    }

    /// So many at a time from now on, fixed: what was inferred is forgotten. A [`cap`](Self::cap) stays.
    pub fn set_limit(&self, limit: u32) {
        self.tuner.fix(limit, self.clock.now(), &self.slots);
    }

    /// How many may be in flight, and how many are, at one instant.
    #[inline]
    pub fn snapshot(&self) -> (u32, u32) {
        let seen = self.slots.count.seen();
        (seen.limit(), seen.in_flight())
    }

    /// How many may be in flight: what is inferred or fixed, or the [`cap`](Self::cap) if that is less.
    pub fn limit(&self) -> u32 {
        self.snapshot().0
    }

    /// How many this guard would allow by itself: what is inferred or fixed, before the [`cap`](Self::cap). Takes a short
    /// lock.
    pub fn own_limit(&self) -> u32 {
        self.tuner.learnt(self.clock.now(), &self.slots).own
    }

    /// How many are in flight.
    pub fn in_flight(&self) -> u32 {
        self.snapshot().1
    }

    /// Everything there is to see. Takes two short locks.
    pub fn stats(&self) -> GuardStats {
        let (learnt, waiting) = (self.tuner.learnt(self.clock.now(), &self.slots), self.slots.waiting());
        let (limit, in_flight) = self.snapshot();
        let Learnt { own: own_limit, samples, dropped } = learnt;
        GuardStats { limit, in_flight, waiting, own_limit, samples, dropped }
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The slot of one who was let in, with the time if its turn is one of those that are timed.
    #[inline(always)]
    pub(super) fn slot(&self, entry: Entry) -> Slot {
        if entry.turn < self.slots.timed.load(Relaxed) {
            Slot::timed(self.clock.now(), entry)
        } else {
            Slot::untimed()
        }
    }

    /// The one way out: gives the slot back, and learns.
    #[inline(always)]
    pub(super) fn end(&self, slot: Slot, ending: Ending, latency: Option<Duration>) {
        match ending {
            Ending::Success if slot.is_timed() => self.end_timed(slot, latency),
            Ending::Success | Ending::Ignored => self.slots.leave(),
            Ending::Dropped => self.end_dropped(),
        }
    }

    /// The slot goes back first: nobody waits for what is learnt.
    #[inline(never)]
    fn end_timed(&self, slot: Slot, latency: Option<Duration>) {
        let now = self.clock.now();
        self.slots.leave();
        self.tuner.success(slot.sample(latency, now), now, &self.slots);
    }

    #[cold]
    fn end_dropped(&self) {
        let now = self.clock.now();
        self.slots.leave();
        self.tuner.dropped(now, &self.slots);
    }
}

impl Full {
    pub(super) fn at(seen: Seen) -> Self {
        Self { limit: seen.limit(), in_flight: seen.in_flight() }
    }
}

/// A denial that passes when someone gives a slot back; no clock tells when.
impl From<Full> for Decision {
    fn from(full: Full) -> Self {
        let Full { limit, in_flight } = full;
        Self {
            allowed: false,
            limit: limit.into(),
            remaining: limit.saturating_sub(in_flight).into(),
            reset_at: Timestamp::EPOCH,
            retry_after: Retry::OnRelease,
        }
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in flight of {}", self.in_flight, self.limit)
    }
}

impl std::error::Error for Full {}

impl<C> fmt::Debug for Guard<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = self.slots.count.seen();
        let (limit, in_flight) = (seen.limit(), seen.in_flight());
        f.debug_struct("Guard").field("limit", &limit).field("in_flight", &in_flight).finish_non_exhaustive()
    }
}
