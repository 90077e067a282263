//! A waiter's position in the queue of its key, and its waits there.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::turn::{Departure, HEARTBEAT};
use tokio::time::{Instant, sleep_until};

use super::key_queues::{KeyQueues, Spot};
use crate::admit::{Admission, Admitting, Denied, StoreError};

/// The time that turns are counted in: that of tokio, since the queue was created.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnClock(Instant);

impl TurnClock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(self) -> Timestamp {
        self.at(Instant::now())
    }

    fn at(self, now: Instant) -> Timestamp {
        Timestamp::EPOCH + now.saturating_duration_since(self.0)
    }
}

/// A position in the queue of a key. If dropped, its waiter leaves, and its turn passes on.
pub(crate) struct Position {
    queues: Arc<KeyQueues>,
    spot: Spot,
    clock: TurnClock,
    departure: Departure,
}

impl Position {
    pub(super) fn new(queues: Arc<KeyQueues>, spot: Spot, clock: TurnClock) -> Self {
        Self { queues, spot, clock, departure: Departure::GaveUp }
    }

    /// Waits for the turn, and from then on until `not_before`. Returns `false` after the deadline. Afterwards a request
    /// is in flight, until [`denied`](Self::denied) or the drop.
    pub(super) async fn turn(&self, not_before: Instant, deadline: Instant) -> bool {
        let mut timer = pin!(sleep_until(not_before));
        poll_fn(|context| {
            loop {
                let (now, waker) = (Instant::now(), context.waker().clone());
                if self.queues.poll_turn(self.spot, waker, now >= not_before, self.clock.at(now)) {
                    return Poll::Ready(true);
                }
                if now >= deadline {
                    return Poll::Ready(false);
                }
                let heartbeat = deadline.min(now + HEARTBEAT);
                let next = if now < not_before { heartbeat.min(not_before) } else { heartbeat };
                timer.as_mut().reset(next);
                if timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Waits for the result of a request. Returns it, and whether it was not there at once; `None` after the deadline.
    pub(super) async fn result(
        &self,
        mut admitting: Admitting,
        deadline: Instant,
    ) -> Option<(Result<Admission, StoreError>, bool)> {
        let (mut timer, mut takes_time) = (pin!(sleep_until(deadline)), false);
        poll_fn(|context| {
            loop {
                if let Poll::Ready(result) = Pin::new(&mut admitting).poll(context) {
                    return Poll::Ready(Some((result, takes_time)));
                }
                takes_time = true;
                let now = Instant::now();
                if now >= deadline {
                    return Poll::Ready(None);
                }
                self.queues.see(self.spot, self.clock.at(now));
                timer.as_mut().reset(deadline.min(now + HEARTBEAT));
                if timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Ends a request that was denied.
    pub(super) fn denied(&self, denied: Denied) {
        self.queues.denied(self.spot, denied, self.clock.now());
    }

    /// Returns the last denial of a waiter of the key.
    pub(super) fn last_denial(&self) -> Option<Denied> {
        self.queues.last_denial(self.spot)
    }

    /// Leaves after an admission.
    pub(super) fn admitted(mut self) {
        self.departure = Departure::Admitted;
    }
}

impl Drop for Position {
    fn drop(&mut self) {
        self.queues.leave(self.spot, self.departure, self.clock.now());
    }
}

/// Returns the time left until a deadline.
pub(super) fn until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
