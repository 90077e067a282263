//! This node's part of a divided limit.

use std::sync::Arc;

use throttlekit_core::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::demand::Demand;
use super::lease::{Lease, Row};
use super::permit::{OwnedSharePermit, SharePermit};
use super::stats::DivisionStats;
use crate::admit::Denied;
use crate::clock::{BootClock, LeaseClock};
use crate::guard::permit::GuardPermit;
use crate::guard::single::{Full, Single};
use crate::store::Background;
use crate::sync::Mutex;
use crate::{Guarantee, Priority};

/// The share of a limit that all its nodes divide.
///
/// Its task ends when it is dropped; then the others get its share as soon as its last grant has expired.
/// [`leave`](Self::leave) releases it at once.
pub(in crate::guard) struct Divided<C: LeaseClock> {
    guard: Arc<Single<BootClock>>,
    shared: Arc<Shared<C>>,
    task: Task,
}

/// State that callers, permits and the task share.
pub(in crate::guard) struct Shared<C> {
    pub(super) lease: Lease,
    pub(super) clock: C,
    /// Number of concurrent calls that this node admits while it is disconnected.
    pub(super) local: u32,
    pub(super) guarantee: Guarantee,
    /// The background of the task, and of the timers that end work.
    pub(super) background: Background,
    pub(super) demand: Demand,
    pub(super) stats: Mutex<DivisionStats>,
}

/// Reason for a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::guard) enum Refused {
    /// This node's share is in use.
    Full(Full),
    /// This node is disconnected from the others, has just joined, or is leaving.
    Fenced,
}

/// The heartbeat task, and the channel that makes it leave.
pub(super) struct Task {
    pub(super) leaves: watch::Sender<bool>,
    /// `None` once it was awaited.
    pub(super) handle: Mutex<Option<Heartbeats>>,
}

/// The running heartbeat task. Aborted when this is dropped.
pub(super) struct Heartbeats(pub(super) JoinHandle<()>);

impl<C: LeaseClock> Divided<C> {
    pub(super) fn from_parts(guard: Arc<Single<BootClock>>, shared: Arc<Shared<C>>, task: Task) -> Self {
        Self { guard, shared, task }
    }

    /// Acquires a slot, if this node has a free one now. Makes no call to the store.
    ///
    /// The slot is taken first, then the clock is read: a process that is paused in between finds the grant expired,
    /// and releases the slot.
    #[inline(always)]
    pub(in crate::guard) fn try_acquire(&self, priority: Priority) -> Result<SharePermit<'_, C>, Refused> {
        let (permit, row) = self.enter(priority)?;
        Ok(SharePermit::new(permit, &self.shared, row))
    }

    /// Like [`try_acquire`](Self::try_acquire), with an owned permit.
    pub(in crate::guard) fn try_acquire_owned(
        &self,
        priority: Priority,
    ) -> Result<OwnedSharePermit<C>, Refused> {
        let (permit, row) = self.enter(priority)?;
        let permit = permit.into_owned(Arc::clone(&self.guard));
        Ok(OwnedSharePermit::new(permit, Arc::clone(&self.shared), row))
    }

    #[inline(always)]
    fn enter(&self, priority: Priority) -> Result<(GuardPermit<'_, BootClock>, Option<Row>), Refused> {
        let (shared, row) = (&*self.shared, self.shared.lease.row());
        match self.guard.try_acquire_counted(priority) {
            Ok((permit, counts)) => {
                if counts {
                    shared.demand.sixteen(self.guard.in_flight());
                }
                Ok((permit, shared.admits(row, &self.guard)?))
            }
            Err(full) => Err(shared.turns_away(full)),
        }
    }

    /// Acquires a slot of a priority, now or after waiting in the queue. A wait continues through an outage.
    pub(in crate::guard) async fn acquire(&self, priority: Priority) -> Result<OwnedSharePermit<C>, Refused> {
        let permit = self.guard.acquire(priority).await.map_err(|full| self.shared.turns_away(full))?;
        // The row is read after the wait, and the slot was taken before that: its share may be of a broken row. So it
        // is released unless it is within the current share, like everything that is in flight then.
        let row = self.shared.lease.row();
        let (limit, in_flight) = self.guard.snapshot();
        if in_flight > limit {
            return Err(Refused::Full(Full { limit, in_flight }));
        }
        let row = self.shared.admits(row, &self.guard)?;
        self.shared.demand.one();
        let permit = permit.into_owned(Arc::clone(&self.guard));
        Ok(OwnedSharePermit::new(permit, Arc::clone(&self.shared), row))
    }

    /// Stops admissions, notifies the other nodes, and waits until all work in flight has ended and they have seen it.
    /// If dropped earlier, the task ends, and the others get the share as soon as the last grant has expired.
    pub(in crate::guard) async fn leave(&self) {
        self.guard.cap(0);
        let _ = self.task.leaves.send(true);
        let heartbeats = self.task.handle.lock().take();
        if let Some(mut heartbeats) = heartbeats {
            let _ = (&mut heartbeats.0).await;
        }
    }

    /// Returns the denial, which ends when a slot is released, or when this node is connected again: then its limit is
    /// zero.
    pub(in crate::guard) fn denial(&self, refused: Refused) -> Denied {
        let denied = Denied::from(match refused {
            Refused::Full(full) => full,
            Refused::Fenced => Full { limit: 0, in_flight: 0 },
        });
        Denied { guarantee: self.guarantee(), ..denied }
    }

    /// Returns the guarantee of this node's decisions while it is connected.
    pub(in crate::guard) fn guarantee(&self) -> Guarantee {
        self.shared.guarantee
    }

    /// Returns the number that this node may have in flight now, and the number that it has.
    pub(in crate::guard) fn snapshot(&self) -> (u32, u32) {
        self.guard.snapshot()
    }

    /// Returns the current state and counters.
    pub(in crate::guard) fn stats(&self) -> DivisionStats {
        let (limit, in_flight) = self.guard.snapshot();
        let fenced = self.shared.is_dead(self.shared.clock.now());
        let denied = self.shared.demand.denied_so_far();
        DivisionStats { limit, in_flight, fenced, denied, ..*self.shared.stats.lock() }
    }
}

impl<C: LeaseClock> Shared<C> {
    /// Returns the row under which a slot that was just taken may be used, or a denial.
    #[inline(always)]
    fn admits(&self, row: Row, guard: &Single<BootClock>) -> Result<Option<Row>, Refused> {
        if self.lease.stands(row, self.clock.now()) { Ok(Some(row)) } else { self.admits_alone(guard) }
    }

    /// Admits under the local share, if there is one and this slot is within it.
    #[cold]
    fn admits_alone(&self, guard: &Single<BootClock>) -> Result<Option<Row>, Refused> {
        if guard.in_flight() <= self.local {
            return Ok(None);
        }
        self.demand.denied(0);
        Err(Refused::Fenced)
    }

    #[cold]
    fn turns_away(&self, full: Full) -> Refused {
        self.demand.denied(full.in_flight);
        if self.is_dead(self.clock.now()) { Refused::Fenced } else { Refused::Full(full) }
    }

    pub(super) fn is_dead(&self, now: Timestamp) -> bool {
        now >= self.lease.dies()
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.0.abort();
    }
}

debug_fields!([C: LeaseClock] Divided<C>, |it| stats = it.stats());
