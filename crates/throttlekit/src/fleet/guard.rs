//! The public shared concurrency limit: this node's part of it.

use std::fmt;
use std::sync::Arc;

use throttlekit_core::{Decision, Retry, Timestamp};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::builder::{FleetBuilder, FleetClock};
use super::demand::Demand;
use super::lease::{Lease, Row};
use super::permit::{FleetPermit, OwnedFleetPermit};
use super::stats::FleetStats;
use crate::guard::{Full, GuardLimit, Permit, Priority};
use crate::store::{Background, MembershipStore};
use crate::sync::Mutex;
use crate::{BootClock, Guarantee, Guard, LeaseClock};

/// A concurrency limit that all its nodes share. See the [module](super) for its guarantees.
///
/// Its task ends when it is dropped; then the others get its share as soon as its last grant has expired.
/// [`leave`](Self::leave) releases it at once.
pub struct FleetGuard<C: LeaseClock = FleetClock> {
    guard: Arc<Guard<BootClock>>,
    shared: Arc<Shared<C>>,
    task: Task,
}

/// State that callers, permits and the task share.
pub(super) struct Shared<C> {
    pub(super) lease: Lease,
    pub(super) clock: C,
    /// Number of concurrent calls that this node admits while it is disconnected.
    pub(super) local: u32,
    pub(super) guarantee: Guarantee,
    /// The background of the task, and of the timers that end work.
    pub(super) background: Background,
    pub(super) demand: Demand,
    pub(super) stats: Mutex<FleetStats>,
}

/// Reason for a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLetIn {
    /// This node's share is in use.
    Full(Full),
    /// This node is disconnected from the others, has just joined, or is leaving.
    Fenced,
}

/// The heartbeat task, and the channel that makes it leave.
pub(super) struct Task {
    pub(super) leaves: watch::Sender<bool>,
    pub(super) handle: JoinHandle<()>,
}

impl FleetGuard {
    /// Describes the limit `name` over a store that all its nodes reach: fixed, or inferred within bounds.
    pub fn builder<R: MembershipStore>(
        store: R,
        name: &str,
        limit: impl Into<GuardLimit>,
    ) -> FleetBuilder<R> {
        FleetBuilder::new(store, name, limit.into())
    }
}

impl<C: LeaseClock> FleetGuard<C> {
    pub(super) fn from_parts(guard: Arc<Guard<BootClock>>, shared: Arc<Shared<C>>, task: Task) -> Self {
        Self { guard, shared, task }
    }

    /// Acquires a slot, if this node has a free one now. Makes no call to the store.
    ///
    /// The slot is taken first, then the clock is read: a process that is paused in between finds the grant expired,
    /// and releases the slot.
    #[inline]
    pub fn try_acquire(&self) -> Result<FleetPermit<'_, C>, NotLetIn> {
        let (permit, row) = self.enter(Priority::HIGHEST)?;
        Ok(FleetPermit::new(permit, &self.shared, row))
    }

    /// Like [`try_acquire`](Self::try_acquire), for a priority of work.
    #[inline]
    pub fn try_acquire_as(&self, priority: Priority) -> Result<FleetPermit<'_, C>, NotLetIn> {
        let (permit, row) = self.enter(priority)?;
        Ok(FleetPermit::new(permit, &self.shared, row))
    }

    /// Like [`try_acquire_as`](Self::try_acquire_as), with an owned permit.
    pub fn try_acquire_owned(&self, priority: Priority) -> Result<OwnedFleetPermit<C>, NotLetIn> {
        let (permit, row) = self.enter(priority)?;
        let permit = permit.into_owned(Arc::clone(&self.guard));
        Ok(OwnedFleetPermit::new(permit, Arc::clone(&self.shared), row))
    }

    #[inline(always)]
    fn enter(&self, priority: Priority) -> Result<(Permit<'_, BootClock>, Option<Row>), NotLetIn> {
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

    /// Acquires a slot of a priority, now or after waiting in the queue; see [`Guard::acquire`]. A wait continues through
    /// an outage.
    pub async fn acquire(&self, priority: Priority) -> Result<FleetPermit<'_, C>, NotLetIn> {
        let permit = self.guard.acquire(priority).await.map_err(|full| self.shared.turns_away(full))?;
        // The row is read after the wait, and the slot was taken before that: its share may be of a broken row. So it
        // is released unless it is within the current share, like everything that is in flight then.
        let row = self.shared.lease.row();
        let (limit, in_flight) = self.guard.snapshot();
        if in_flight > limit {
            return Err(NotLetIn::Full(Full { limit, in_flight }));
        }
        let row = self.shared.admits(row, &self.guard)?;
        self.shared.demand.one();
        Ok(FleetPermit::new(permit, &self.shared, row))
    }

    /// Stops admissions, notifies the other nodes, and waits until all work in flight has ended and they have seen it.
    /// Add a timeout if needed: if dropped earlier, the others get the share as soon as the last grant has expired.
    pub async fn leave(mut self) {
        self.guard.cap(0);
        let _ = self.task.leaves.send(true);
        let _ = (&mut self.task.handle).await;
    }

    /// Returns the guarantee of this node's decisions while it is connected.
    pub(crate) fn guarantee(&self) -> Guarantee {
        self.shared.guarantee
    }

    /// Returns the number that this node may have in flight now, and the number that it has.
    pub fn snapshot(&self) -> (u32, u32) {
        self.guard.snapshot()
    }

    /// Returns the current state and counters.
    pub fn stats(&self) -> FleetStats {
        let (limit, in_flight) = self.guard.snapshot();
        let fenced = self.shared.is_dead(self.shared.clock.now());
        let denied = self.shared.demand.denied_so_far();
        FleetStats { limit, in_flight, fenced, denied, ..*self.shared.stats.lock() }
    }
}

impl<C: LeaseClock> Shared<C> {
    /// Returns the row under which a slot that was just taken may be used, or a denial.
    #[inline(always)]
    fn admits(&self, row: Row, guard: &Guard<BootClock>) -> Result<Option<Row>, NotLetIn> {
        if self.lease.stands(row, self.clock.now()) { Ok(Some(row)) } else { self.admits_alone(guard) }
    }

    /// Admits under the local share, if there is one and this slot is within it.
    #[cold]
    fn admits_alone(&self, guard: &Guard<BootClock>) -> Result<Option<Row>, NotLetIn> {
        if guard.in_flight() <= self.local {
            return Ok(None);
        }
        self.demand.denied(0);
        Err(NotLetIn::Fenced)
    }

    #[cold]
    fn turns_away(&self, full: Full) -> NotLetIn {
        self.demand.denied(full.in_flight);
        if self.is_dead(self.clock.now()) { NotLetIn::Fenced } else { NotLetIn::Full(full) }
    }

    pub(super) fn is_dead(&self, now: Timestamp) -> bool {
        now >= self.lease.dies()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// A denial that ends when a slot is released, or when this node is connected again.
impl From<NotLetIn> for Decision {
    fn from(not: NotLetIn) -> Self {
        match not {
            NotLetIn::Full(full) => full.into(),
            NotLetIn::Fenced => Self {
                allowed: false,
                limit: 0,
                remaining: 0,
                reset_at: Timestamp::EPOCH,
                retry_after: Retry::OnRelease,
            },
        }
    }
}

impl fmt::Display for NotLetIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(full) => full.fmt(f),
            Self::Fenced => f.write_str("this node has no share of its fleet's ceiling now"),
        }
    }
}

impl std::error::Error for NotLetIn {}

debug_fields!([C: LeaseClock] FleetGuard<C>, |it| stats = it.stats());
