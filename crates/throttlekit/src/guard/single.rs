//! One concurrency limit: slots, what is learned from them, and a clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use throttlekit_core::concurrency::Ending;
use throttlekit_core::{Decision, Retry, Timestamp};

use super::count::{Entry, Seen};
use super::permit::{GuardPermit, OwnedSlot, Slot};
use super::slots::Slots;
use super::stats::GuardStats;
use super::tuner::{Learnt, Own, Tuner};
use super::wait::Acquire;
use crate::Priority;
use crate::admit::Denied;
use crate::clock::Clock;

/// One limit, for all calls or for those of one key.
pub(crate) struct Single<C> {
    slots: Slots,
    tuner: Tuner,
    clock: C,
}

/// No slot is free for this priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// Maximum number in flight.
    pub(crate) limit: u32,
    /// Number in flight, at the same instant.
    pub(crate) in_flight: u32,
}

impl<C: Clock> Single<C> {
    pub(super) fn from_parts(slots: Slots, own: Own, clock: C) -> Self {
        Self { slots, tuner: Tuner::new(own), clock }
    }

    /// Acquires a slot, if one is free for the priority now. Without a multiplication if the priority is known to be
    /// the highest.
    #[inline(always)]
    pub(super) fn try_acquire(&self, priority: Priority) -> Result<GuardPermit<'_, C>, Denied> {
        match self.enter(priority) {
            Ok(entry) => Ok(GuardPermit::new(self, self.slot(entry))),
            Err(seen) => Err(Full::at(seen).into()),
        }
    }

    /// Acquires a slot, and returns the limit and the number in flight, of the instant of the decision.
    #[inline(always)]
    pub(super) fn try_acquire_seen(&self, priority: Priority) -> Result<(GuardPermit<'_, C>, Entry), Full> {
        match self.enter(priority) {
            Ok(entry) => Ok((GuardPermit::new(self, self.slot(entry)), entry)),
            Err(seen) => Err(Full::at(seen)),
        }
    }

    /// Acquires a slot, and returns whether it is the first of sixteen turns: for counting admissions.
    #[cfg(feature = "store")]
    #[inline(always)]
    pub(super) fn try_acquire_counted(&self, priority: Priority) -> Result<(GuardPermit<'_, C>, bool), Full> {
        match self.enter(priority) {
            Ok(entry) => Ok((GuardPermit::new(self, self.slot(entry)), entry.turn == 0)),
            Err(seen) => Err(Full::at(seen)),
        }
    }

    #[inline(always)]
    fn enter(&self, priority: Priority) -> Result<Entry, Seen> {
        if priority == Priority::HIGHEST { self.slots.enter_first() } else { self.slots.enter(priority) }
    }

    pub(super) fn try_acquire_owned(self: Arc<Self>, priority: Priority) -> Result<OwnedSlot<C>, Full> {
        match self.enter(priority) {
            Ok(entry) => {
                let slot = self.slot(entry);
                Ok(OwnedSlot::new(self, slot))
            }
            Err(seen) => Err(Full::at(seen)),
        }
    }

    /// Acquires a slot, now or after waiting in the queue. Denied at once if the queue is full.
    pub(super) fn acquire(&self, priority: Priority) -> Acquire<'_, C> {
        Acquire::new(self, priority)
    }

    /// Like [`acquire`](Self::acquire), with an owned slot.
    pub(super) async fn acquire_owned(self: Arc<Self>, priority: Priority) -> Result<OwnedSlot<C>, Full> {
        let slot = self.acquire(priority).await?.into_slot();
        Ok(OwnedSlot::new(self, slot))
    }

    /// Caps the limit: the limit in force is the smaller of `share` and the own limit.
    pub(super) fn cap(&self, share: u32) {
        self.tuner.cap(share, self.clock.now(), &self.slots);
    }

    /// Caps the limit to a share of a limit that others use as well, whose total this one infers.
    #[cfg(feature = "store")]
    pub(super) fn cap_of(&self, share: u32, ceiling: u32) {
        self.tuner.cap_of(share, ceiling, self.clock.now(), &self.slots);
    }

    /// Sets a fixed limit; the inferred one is discarded. A [`cap`](Self::cap) stays.
    pub(super) fn set_limit(&self, limit: u32) {
        self.tuner.fix(limit, self.clock.now(), &self.slots);
    }

    /// Returns the maximum number in flight and the number in flight, at one instant.
    #[inline]
    pub(super) fn snapshot(&self) -> (u32, u32) {
        let seen = self.slots.count.seen();
        (seen.limit(), seen.in_flight())
    }

    /// Returns the number in flight.
    #[cfg(feature = "store")]
    pub(super) fn in_flight(&self) -> u32 {
        self.snapshot().1
    }

    /// Returns the current state and counters. Takes two short locks.
    pub(super) fn stats(&self) -> GuardStats {
        let (learnt, waiting) = (self.tuner.learnt(self.clock.now(), &self.slots), self.slots.waiting());
        let (limit, in_flight) = self.snapshot();
        let Learnt { own: own_limit, samples, dropped } = learnt;
        GuardStats { limit, in_flight, waiting, own_limit, samples, dropped, ..GuardStats::default() }
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns how long a slot has been held, if it is timed.
    pub(super) fn elapsed(&self, slot: Slot) -> Option<Duration> {
        slot.is_timed().then(|| slot.sample(None, self.clock.now()).latency)
    }

    /// Decides a call without admitting it.
    pub(super) fn peek(&self, priority: Priority) -> Decision {
        let seen = self.slots.count.seen();
        decision(self.slots.admits(priority, seen), seen.limit(), seen.in_flight())
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

/// Returns the decision of a concurrency limit.
#[inline(always)]
pub(crate) fn decision(allowed: bool, limit: u32, in_flight: u32) -> Decision {
    Decision {
        allowed,
        limit: limit.into(),
        remaining: limit.saturating_sub(in_flight).into(),
        reset_at: Timestamp::EPOCH,
        retry_after: if allowed { Retry::Now } else { Retry::OnRelease },
    }
}

impl Full {
    pub(super) fn at(seen: Seen) -> Self {
        Self { limit: seen.limit(), in_flight: seen.in_flight() }
    }
}

impl From<Full> for Denied {
    #[inline(always)]
    fn from(full: Full) -> Self {
        Self::on_concurrency(decision(false, full.limit, full.in_flight))
    }
}

impl<C> fmt::Debug for Single<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = self.slots.count.seen();
        let (limit, in_flight) = (seen.limit(), seen.in_flight());
        f.debug_struct("Single").field("limit", &limit).field("in_flight", &in_flight).finish_non_exhaustive()
    }
}
