//! Waiting for a slot.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::priority::Priority;
use super::wait_queue::Ticket;
use super::{Full, Guard, Permit};
use crate::{BootClock, Clock};

/// The wait for a slot; see [`Guard::acquire`].
#[must_use = "nobody stands in line before the future is polled"]
pub struct Acquire<'a, C: Clock = BootClock> {
    guard: &'a Guard<C>,
    priority: Priority,
    /// A position in the queue, from the first poll that finds no slot until the one that does.
    ticket: Option<Ticket>,
}

impl<'a, C: Clock> Acquire<'a, C> {
    pub(super) fn new(guard: &'a Guard<C>, priority: Priority) -> Self {
        Self { guard, priority, ticket: None }
    }
}

impl<'a, C: Clock> Future for Acquire<'a, C> {
    type Output = Result<Permit<'a, C>, Full>;

    /// Reads the time when the slot is taken, not when it was granted: the work begins here.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { guard, priority, ref mut ticket } = *self;
        let answer = guard.slots().poll_enter(priority, ticket, context.waker());
        answer.map(|entry| match entry {
            Ok(entry) => Ok(Permit::new(guard, guard.slot(entry))),
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
