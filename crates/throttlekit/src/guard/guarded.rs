//! The public concurrency limiter.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use throttlekit_core::concurrency::{Ceiling, Ending};
use throttlekit_core::{Decision, Retry, Timestamp};

use super::builder::GuardBuilder;
use super::count::{Entry, Seen};
use super::permit::{OwnedPermit, Permit, Slot};
use super::priority::Priority;
use super::slots::Slots;
use super::tuner::{Learnt, Own, Tuner};
use super::wait::Acquire;
use crate::{BootClock, Clock};

/// A concurrency limiter for this process: a fixed limit, or one that adapts to latency.
///
/// [`try_acquire`](Self::try_acquire) is one load and one compare-and-swap if no caller waits. See the [module](super)
/// for its guarantees.
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

/// A denial: the concurrency limit is reached.
///
/// `in_flight` is below `limit` if the rest is reserved for earlier priorities, or for waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Maximum number in flight.
    pub limit: u32,
    /// Number in flight, at the same instant.
    pub in_flight: u32,
}

/// A guard at one instant, for dashboards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardStats {
    /// Maximum number in flight.
    pub limit: u32,
    /// Number in flight.
    pub in_flight: u32,
    /// Number of waiters.
    pub waiting: u32,
    /// The limit before [`cap`](Guard::cap): fixed, or inferred here.
    pub own_limit: u32,
    /// Completed calls whose latency was sampled.
    pub samples: u64,
    /// Completed calls with the outcome `dropped`.
    pub dropped: u64,
}

impl Guard {
    /// Creates a guard with a fixed limit; the largest limit is 134 million.
    pub fn fixed(limit: u32) -> Self {
        Self::builder(limit).build()
    }

    /// Creates a guard that admits as many concurrent calls as keeps latency low, within the bounds of the ceiling.
    pub fn adaptive(ceiling: Ceiling) -> Self {
        Self::builder(ceiling).build()
    }

    /// Describes a guard with a fixed limit or a [`Ceiling`].
    pub fn builder(limit: impl Into<super::GuardLimit>) -> GuardBuilder {
        GuardBuilder::new(limit.into())
    }
}

impl<C: Clock> Guard<C> {
    pub(super) fn from_parts(slots: Slots, own: Own, clock: C) -> Self {
        Self { slots, tuner: Tuner::new(own), clock }
    }

    /// Acquires a slot of the first priority, if one is free now.
    #[inline]
    pub fn try_acquire(&self) -> Result<Permit<'_, C>, Full> {
        match self.slots.enter_first() {
            Ok(entry) => Ok(Permit::new(self, self.slot(entry))),
            Err(seen) => Err(Full::at(seen)),
        }
    }

    /// Acquires a slot, and returns whether it is the first of sixteen turns: for counting admissions.
    #[cfg(feature = "store")]
    #[inline(always)]
    pub(crate) fn try_acquire_counted(&self, priority: Priority) -> Result<(Permit<'_, C>, bool), Full> {
        match self.slots.enter(priority) {
            Ok(entry) => Ok((Permit::new(self, self.slot(entry)), entry.turn == 0)),
            Err(seen) => Err(Full::at(seen)),
        }
    }

    /// Acquires a slot of a priority, if one is free for it now.
    #[inline]
    pub fn try_acquire_as(&self, priority: Priority) -> Result<Permit<'_, C>, Full> {
        match self.slots.enter(priority) {
            Ok(entry) => Ok(Permit::new(self, self.slot(entry))),
            Err(seen) => Err(Full::at(seen)),
        }
    }

    /// Like [`try_acquire_as`](Self::try_acquire_as), with an owned permit.
    #[inline]
    pub fn try_acquire_owned(self: &Arc<Self>, priority: Priority) -> Result<OwnedPermit<C>, Full> {
        Arc::clone(self).try_into_permit(priority)
    }

    pub(super) fn try_into_permit(self: Arc<Self>, priority: Priority) -> Result<OwnedPermit<C>, Full> {
        match self.slots.enter(priority) {
            Ok(entry) => {
                let slot = self.slot(entry);
                Ok(OwnedPermit::new(self, slot))
            }
            Err(seen) => Err(Full::at(seen)),
        }
    }

    /// Acquires a slot of a priority, now or after waiting in the queue. Returns [`Full`] at once if the queue is full.
    ///
    /// The future can be dropped at any time: it leaves the queue, and a slot that was already granted goes to the next
    /// waiter. The builder's [`depth_max`](GuardBuilder::depth_max) sets the length of the queue. Default: 0.
    pub fn acquire(&self, priority: Priority) -> Acquire<'_, C> {
        Acquire::new(self, priority)
    }

    /// Like [`acquire`](Self::acquire), with an owned permit.
    pub async fn acquire_owned(self: Arc<Self>, priority: Priority) -> Result<OwnedPermit<C>, Full> {
        let slot = self.acquire(priority).await?.into_slot();
        Ok(OwnedPermit::new(self, slot))
    }

    /// Acquires a slot of a priority within `wait`, measured by tokio's timer; returns [`Full`] on timeout.
    #[cfg(feature = "wait")]
    pub async fn acquire_within(&self, priority: Priority, wait: Duration) -> Result<Permit<'_, C>, Full> {
        match tokio::time::timeout(wait, self.acquire(priority)).await {
            Ok(answer) => answer,
            Err(_) => Err(Full::at(self.slots.count.seen())),
        }
    }

    /// Caps the limit: the limit in force is the smaller of `share` and this guard's own limit.
    ///
    /// Calls in flight continue. Zero denies all new ones.
    pub fn cap(&self, share: u32) {
        self.tuner.cap(share, self.clock.now(), &self.slots);
    }

    /// Caps the limit to a share of a limit that others use as well, whose total this guard infers.
    #[cfg(feature = "store")]
    pub(crate) fn cap_of(&self, share: u32, ceiling: u32) {
        self.tuner.cap_of(share, ceiling, self.clock.now(), &self.slots);
    }

    /// Sets a fixed limit; the inferred one is discarded. A [`cap`](Self::cap) stays.
    pub fn set_limit(&self, limit: u32) {
        self.tuner.fix(limit, self.clock.now(), &self.slots);
    }

    /// Returns the maximum number in flight and the number in flight, at one instant.
    #[inline]
    pub fn snapshot(&self) -> (u32, u32) {
        let seen = self.slots.count.seen();
        (seen.limit(), seen.in_flight())
    }

    /// Returns the maximum number in flight: inferred or fixed, or the [`cap`](Self::cap) if that is lower.
    pub fn limit(&self) -> u32 {
        self.snapshot().0
    }

    /// Returns this guard's own limit: inferred or fixed, before the [`cap`](Self::cap). Takes a short lock.
    pub fn own_limit(&self) -> u32 {
        self.tuner.learnt(self.clock.now(), &self.slots).own
    }

    /// Returns the number in flight.
    pub fn in_flight(&self) -> u32 {
        self.snapshot().1
    }

    /// Returns the current state and counters. Takes two short locks.
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

    /// Creates the slot of an admission, with a start time if its turn is timed.
    #[inline(always)]
    pub(super) fn slot(&self, entry: Entry) -> Slot {
        if entry.turn < self.slots.timed.load(Relaxed) {
            Slot::timed(self.clock.now(), entry)
        } else {
            Slot::untimed()
        }
    }

    /// Ends a slot; every outcome takes this path: releases it, and updates the limit.
    #[inline(always)]
    pub(super) fn end(&self, slot: Slot, ending: Ending, latency: Option<Duration>) {
        match ending {
            Ending::Success if slot.is_timed() => self.end_timed(slot, latency),
            Ending::Success | Ending::Ignored => self.slots.leave(),
            Ending::Dropped => self.end_dropped(),
        }
    }

    /// Releases the slot first: no caller waits for the update of the limit.
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

/// A denial that ends when a slot is released; no retry time is known.
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
