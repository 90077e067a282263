//! Slots and their wait queue: one atomic word if the queue is empty, a lock otherwise.
//!
//! While the queue is not empty the word has a flag, and no request is admitted without the lock of the queue. A
//! release sees the flag in the same step, and hands the slot over under that lock. So no slot is free while a waiter
//! may have it, except in the steps between the two.

use std::task::{Poll, Waker};

use super::count::{Attempt, Count, Entry, Seen};
use super::priority::{Kept, Priorities};
use super::wait_queue::{Left, Ticket, Turn, WaitQueue};
use crate::Priority;
use crate::sync::{AtomicU32, Mutex};

#[derive(Debug)]
pub(super) struct Slots {
    pub(super) count: Count,
    /// Number of turns that are timed. Not on the cache line of the word, which another thread may have taken by the
    /// time this is read: it is hardly ever written, so every processor keeps it cached.
    pub(super) timed: AtomicU32,
    priorities: Priorities,
    line: Mutex<WaitQueue<Entry>>,
}

impl Slots {
    pub(super) fn new(limit: u32, timed: u32, priorities: Priorities, queue_max: u32) -> Self {
        let line = Mutex::new(WaitQueue::new(priorities.count(), queue_max));
        Self { count: Count::new(limit), timed: AtomicU32::new(timed), priorities, line }
    }

    /// Admits one of the first priority; otherwise returns the word that was read.
    #[inline(always)]
    pub(super) fn enter_first(&self) -> Result<Entry, Seen> {
        self.count.enter(Kept::NOTHING).or_else(|seen| self.enter_past_line(Priority::HIGHEST, seen).entry())
    }

    /// Admits one of a priority; otherwise returns the word that was read.
    #[inline(always)]
    pub(super) fn enter(&self, priority: Priority) -> Result<Entry, Seen> {
        self.count
            .enter(self.priorities.kept(priority))
            .or_else(|seen| self.enter_past_line(priority, seen).entry())
    }

    /// Admits one while the queue is not empty, but perhaps only with later priorities, which have less capacity.
    #[cold]
    fn enter_past_line(&self, priority: Priority, seen: Seen) -> Attempt {
        let kept = self.priorities.kept(priority);
        if !seen.somebody_waits() || i64::from(seen.in_flight()) >= kept.leaves(i64::from(seen.limit())) {
            return Attempt::denied(seen);
        }
        let line = self.line.lock();
        if line.is_ahead_of(self.priorities.place(priority)) {
            return Attempt::denied(seen);
        }
        self.count.enter_beside_line(kept)
    }

    /// Checks whether a call would be admitted, of the word that was read.
    pub(super) fn admits(&self, priority: Priority, seen: Seen) -> bool {
        let allowed = self.priorities.kept(priority).leaves(i64::from(seen.limit()));
        let passes = !seen.somebody_waits() || !self.line.lock().is_ahead_of(self.priorities.place(priority));
        i64::from(seen.in_flight()) < allowed && passes
    }

    /// Releases a slot, to a waiter if there is one.
    #[inline(always)]
    pub(super) fn leave(&self) {
        if self.count.leave().somebody_waits() {
            self.hand_over();
        }
    }

    /// Applies another limit. The caller hands over if this returns that a waiter may be admitted.
    #[must_use]
    pub(super) fn set_limit(&self, limit: u32) -> bool {
        let before = self.count.set_limit(limit);
        before.somebody_waits() && before.limit() < limit
    }

    /// Gives free slots to waiters, and wakes them without the lock.
    #[cold]
    pub(super) fn hand_over(&self) {
        while let Some(waker) = self.grant_next() {
            waker.wake();
            let seen = self.count.seen();
            if !seen.somebody_waits() || seen.in_flight() >= seen.limit() {
                return;
            }
        }
    }

    /// Gives a slot to the first in the queue. If there is none for it, there is none for any waiter after it.
    fn grant_next(&self) -> Option<Waker> {
        let mut line = self.line.lock();
        let place = line.first()?;
        let entry = self.count.enter_beside_line(self.priorities.kept_at(place)).entry().ok()?;
        let waker = line.grant(place, entry);
        self.tell(&line);
        waker
    }

    /// Admits one, now or after waiting in the queue. Its position in the queue is in `ticket` meanwhile.
    ///
    /// It sets the flag before it checks again: a slot released from then on is handed over, and one released before is
    /// seen.
    pub(super) fn poll_enter(
        &self,
        priority: Priority,
        ticket: &mut Option<Ticket>,
        waker: &Waker,
    ) -> Poll<Result<Entry, Seen>> {
        if ticket.is_some() {
            return self.poll_turn(ticket, waker.clone()).map(Ok);
        }
        if let Ok(entry) = self.enter(priority) {
            return Poll::Ready(Ok(entry));
        }
        let (place, waker) = (self.priorities.place(priority), waker.clone());
        let mut line = self.line.lock();
        if line.is_full(place) {
            return Poll::Ready(Err(self.count.seen()));
        }
        if !line.is_ahead_of(place) {
            self.count.set_waits(true);
            if let Ok(entry) = self.count.enter_beside_line(self.priorities.kept_at(place)).entry() {
                self.tell(&line);
                return Poll::Ready(Ok(entry));
            }
        }
        *ticket = Some(line.enter(place, waker));
        Poll::Pending
    }

    fn poll_turn(&self, ticket: &mut Option<Ticket>, waker: Waker) -> Poll<Entry> {
        let Some(held) = ticket.take() else { return Poll::Pending };
        let turn = self.line.lock().look(held, waker);
        match turn {
            Turn::Come(entry) => Poll::Ready(entry),
            Turn::Wait(held, _before) => {
                *ticket = Some(held);
                Poll::Pending
            }
        }
    }

    /// Leaves the queue. A slot that was granted meanwhile goes to the next.
    pub(super) fn give_up(&self, ticket: Ticket) {
        let left = {
            let mut line = self.line.lock();
            let left = line.leave(ticket);
            self.tell(&line);
            left
        };
        match left {
            Left::Slot(_) => self.leave(),
            Left::Place(waker) => drop(waker),
        }
    }

    /// A seeded bug: sets the flag, and does not check again.
    #[cfg(all(test, loom))]
    pub(super) fn wait_blindly(&self, ticket: &mut Option<Ticket>, waker: &Waker) {
        let mut line = self.line.lock();
        self.count.set_waits(true);
        *ticket = Some(line.enter(0, waker.clone()));
    }

    pub(super) fn waiting(&self) -> u32 {
        self.line.lock().waiting()
    }

    /// Clears the word's flag if the queue is empty. The queue's lock is held.
    fn tell(&self, line: &WaitQueue<Entry>) {
        if line.is_empty() {
            self.count.set_waits(false);
        }
    }
}
