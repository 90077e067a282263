//! A slot that a caller holds while work runs.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::Hold;
use tokio::sync::oneshot;

use super::slot_registry::{Leave, Leaves, SlotRegistry, Ticket};
use crate::store::StoreError;
use crate::{BootClock, LeaseClock};

/// For how many deadlines of its store a release is waited for, and how long more for the pauses between its tries and
/// for those before it.
const RELEASE_DEADLINES: u32 = 16;
const RELEASE_PAUSES: Duration = Duration::from_secs(5);

/// Proof that a slot is held, by this process, until a deadline that beats put off.
///
/// Dropped, it is given back by a task of the slots' own; where a process ends before that, it comes back when its lease
/// is over.
#[must_use = "dropping it gives the slot back"]
pub struct HeldSlot<C: LeaseClock = BootClock> {
    ticket: Arc<Ticket>,
    registry: Arc<SlotRegistry>,
    clock: Arc<C>,
    leaves: Leaves,
    /// Whether the store may know of it.
    owed: bool,
}

/// The slot is not held any more: the deadline passed, or the store gave it to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced;

impl<C: LeaseClock> HeldSlot<C> {
    pub(super) fn asked_for(
        ticket: Arc<Ticket>,
        registry: Arc<SlotRegistry>,
        clock: Arc<C>,
        leaves: Leaves,
    ) -> Self {
        Self { ticket, registry, clock, leaves, owed: true }
    }

    pub(super) fn begin(&self, hold: Hold) {
        self.ticket.begin(hold);
    }

    /// The store does not know of it.
    pub(super) fn forget(mut self) {
        self.owed = false;
    }

    pub(super) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Until when work may run, by the clock that the slots were built with, as of now: beats put it off.
    pub fn deadline(&self) -> Timestamp {
        self.ticket.deadline()
    }

    /// Whether work has to stop. Once it has, it always has. Look before every step that must not be done twice.
    pub fn is_fenced(&self) -> bool {
        self.ticket.is_fenced(self.clock.now())
    }

    /// Waits until work has to stop.
    pub async fn fenced(&self) {
        loop {
            let rung = self.ticket.bell.notified();
            let now = self.clock.now();
            if self.ticket.is_fenced(now) {
                return;
            }
            // Beats put the deadline off, and losses bring it forward: both ring.
            let _ = self.registry.background.within(self.deadline().since(now), rung).await;
        }
    }

    /// Works until the work is done or has to stop; then it is dropped where it stands.
    ///
    /// The clock is looked at before every step, so that a process which was paused past its deadline does not take
    /// another.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Fenced> {
        let (mut work, mut fenced) = (pin!(work), pin!(self.fenced()));
        poll_fn(|context| {
            if self.is_fenced() || fenced.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(Fenced));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// Gives the slot back, and says whether it was held to the end. If this is dropped while it waits, the slot goes back
    /// all the same.
    ///
    /// An error says that nobody knows whether it went back: the store did not answer, or no renewer was left to ask it.
    /// Then it comes back when its lease is over.
    pub async fn release(mut self) -> Result<bool, StoreError> {
        let (told, hears) = oneshot::channel();
        self.leave(Some(told));
        let background = &self.registry.background;
        let deadline = background.deadline();
        let wait = RELEASE_PAUSES + deadline.saturating_mul(RELEASE_DEADLINES);
        let told = background.within(wait, hears).await.ok_or(StoreError::Deadline(deadline))?;
        told.unwrap_or_else(|_| Err(StoreError::unavailable("nobody is left to give the slot back")))
    }

    /// From here on nobody beats for it: a beat on the way back would only put its end off.
    fn leave(&mut self, told: Option<oneshot::Sender<Result<bool, StoreError>>>) {
        self.registry.strike(self.ticket.lease);
        if !std::mem::take(&mut self.owed) {
            return;
        }
        if self.ticket.deadline() > Timestamp::EPOCH && self.is_fenced() {
            self.registry.counters.fenced.fetch_add(1, Relaxed);
        }
        Leave { ticket: self.ticket.clone(), told }.send(&self.leaves, &self.registry.counters);
    }
}

impl<C: LeaseClock> Drop for HeldSlot<C> {
    fn drop(&mut self) {
        self.leave(None);
    }
}

impl<C: LeaseClock> fmt::Debug for HeldSlot<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldSlot")
            .field("key", &self.ticket.key)
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the slot is not held any more: stop, and ask for another")
    }
}

impl std::error::Error for Fenced {}
