//! What users hold: this node's part of a ceiling that a fleet shares.

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
use crate::guard::{Class, Full, GuardLimit, Permit};
use crate::store::{Background, RollStore};
use crate::sync::Mutex;
use crate::{BootClock, Guarantee, Guard, LeaseClock};

/// At most so many at a time, by all nodes of a fleet together. See the [module](super) for what is promised.
///
/// Its task ends when it is dropped; then the others have its share as soon as its last grant has died.
/// [`leave`](Self::leave) gives it to them at once.
pub struct FleetGuard<C: LeaseClock = FleetClock> {
    guard: Arc<Guard<BootClock>>,
    shared: Arc<Shared<C>>,
    task: Task,
}

/// What the threads that ask, the permits and the task have in common.
pub(super) struct Shared<C> {
    pub(super) lease: Lease,
    pub(super) clock: C,
    /// How many this node lets in while it is cut off.
    pub(super) local: u32,
    pub(super) guarantee: Guarantee,
    /// Where the task runs, and whose timers end work.
    pub(super) background: Background,
    pub(super) demand: Demand,
    pub(super) stats: Mutex<FleetStats>,
}

/// Why nobody was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLetIn {
    /// This node's share is in use.
    Full(Full),
    /// This node is cut off from its fleet, has only just come, or leaves.
    Fenced,
}

/// The task that beats, and how to tell it to leave.
pub(super) struct Task {
    pub(super) leaves: watch::Sender<bool>,
    pub(super) handle: JoinHandle<()>,
}

impl FleetGuard {
    /// The fleet `name` over a store that all its nodes reach: with a fixed ceiling, or within which bounds it is inferred.
    pub fn builder<R: RollStore>(store: R, name: &str, limit: impl Into<GuardLimit>) -> FleetBuilder<R> {
        FleetBuilder::new(store, name, limit.into())
    }
}

impl<C: LeaseClock> FleetGuard<C> {
    pub(super) fn from_parts(guard: Arc<Guard<BootClock>>, shared: Arc<Shared<C>>, task: Task) -> Self {
        Self { guard, shared, task }
    }

    /// A slot, if this node has one now. No call is made.
    ///
    /// The slot is taken first, then the clock is read: who is stopped in between finds the grant dead, and gives the
    /// slot back.
    #[inline]
    pub fn try_acquire(&self) -> Result<FleetPermit<'_, C>, NotLetIn> {
        let (permit, row) = self.enter(Class::FIRST)?;
        Ok(FleetPermit::new(permit, &self.shared, row))
    }

    /// The same for a class of work.
    #[inline]
    pub fn try_acquire_as(&self, class: Class) -> Result<FleetPermit<'_, C>, NotLetIn> {
        let (permit, row) = self.enter(class)?;
        Ok(FleetPermit::new(permit, &self.shared, row))
    }

    /// The same in a permit that lives on its own.
    pub fn try_acquire_owned(&self, class: Class) -> Result<OwnedFleetPermit<C>, NotLetIn> {
        let (permit, row) = self.enter(class)?;
        let permit = permit.into_owned(Arc::clone(&self.guard));
        Ok(OwnedFleetPermit::new(permit, Arc::clone(&self.shared), row))
    }

    #[inline(always)]
    fn enter(&self, class: Class) -> Result<(Permit<'_, BootClock>, Option<Row>), NotLetIn> {
        let (shared, row) = (&*self.shared, self.shared.lease.row());
        match self.guard.try_acquire_counted(class) {
            Ok((permit, counts)) => {
                if counts {
                    shared.demand.sixteen(self.guard.in_flight());
                }
                Ok((permit, shared.admits(row, &self.guard)?))
            }
            Err(full) => Err(shared.turns_away(full)),
        }
    }

    /// A slot of a class, now or when it is this ask's turn; see [`Guard::acquire`]. A wait outlasts an outage.
    pub async fn acquire(&self, class: Class) -> Result<FleetPermit<'_, C>, NotLetIn> {
        let permit = self.guard.acquire(class).await.map_err(|full| self.shared.turns_away(full))?;
        // The row of when the wait was over, and a slot that was taken before that: its share may be of a broken row.
        // So it is given back unless it is within the share of now, as everything that is in flight then is.
        let row = self.shared.lease.row();
        let (limit, in_flight) = self.guard.snapshot();
        if in_flight > limit {
            return Err(NotLetIn::Full(Full { limit, in_flight }));
        }
        let row = self.shared.admits(row, &self.guard)?;
        self.shared.demand.one();
        Ok(FleetPermit::new(permit, &self.shared, row))
    }

    /// Lets nothing more in, tells the others, and waits until all that is in flight has ended and they know. Wait no
    /// longer than you want to: dropped before, the others have the share as soon as the last grant has died.
    pub async fn leave(mut self) {
        self.guard.cap(0);
        let _ = self.task.leaves.send(true);
        let _ = (&mut self.task.handle).await;
    }

    /// What the answers of this node are worth while it hears of its fleet.
    pub(crate) fn guarantee(&self) -> Guarantee {
        self.shared.guarantee
    }

    /// How many this node may have in flight now, and how many it has.
    pub fn snapshot(&self) -> (u32, u32) {
        self.guard.snapshot()
    }

    /// Everything there is to see.
    pub fn stats(&self) -> FleetStats {
        let (limit, in_flight) = self.guard.snapshot();
        let fenced = self.shared.is_dead(self.shared.clock.now());
        let denied = self.shared.demand.denied_so_far();
        FleetStats { limit, in_flight, fenced, denied, ..*self.shared.stats.lock() }
    }
}

impl<C: LeaseClock> Shared<C> {
    /// Under which row a slot that was just taken may be used, or that it may not.
    #[inline(always)]
    fn admits(&self, row: Row, guard: &Guard<BootClock>) -> Result<Option<Row>, NotLetIn> {
        if self.lease.stands(row, self.clock.now()) { Ok(Some(row)) } else { self.admits_alone(guard) }
    }

    /// One of the local share, if there is one and this slot lies within it.
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

/// A denial that passes when a slot is given back, or when this node hears of its fleet again.
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
