//! Waiting for a slot.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::permit::GuardPermit;
use super::single::{Full, Single};
use super::wait_queue::Ticket;
use crate::Priority;
use crate::clock::Clock;

/// The wait for a slot. If dropped, it leaves the queue, and a slot that was already granted goes to the next waiter.
#[must_use = "no position in the queue is taken before the future is polled"]
pub(super) struct Acquire<'a, C: Clock> {
    guard: &'a Single<C>,
    priority: Priority,
    /// A position in the queue, from the first poll that finds no slot until the one that does.
    ticket: Option<Ticket>,
}

impl<'a, C: Clock> Acquire<'a, C> {
    pub(super) fn new(guard: &'a Single<C>, priority: Priority) -> Self {
        Self { guard, priority, ticket: None }
    }
}

impl<'a, C: Clock> Future for Acquire<'a, C> {
    type Output = Result<GuardPermit<'a, C>, Full>;

    /// Reads the time when the slot is taken, not when it was granted: the work begins here.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { guard, priority, ref mut ticket } = *self;
        let answer = guard.slots().poll_enter(priority, ticket, context.waker());
        answer.map(|entry| match entry {
            Ok(entry) => Ok(GuardPermit::new(guard, guard.slot(entry))),
            Err(seen) => Err(Full::at(seen)),
        })
    }
}

impl<C: Clock> Drop for Acquire<'_, C> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.guard.slots().give_up(ticket);
        }
    }
}

debug_fields!([C: Clock] Acquire<'_, C>, |it| priority = it.priority, ticket = it.ticket);
