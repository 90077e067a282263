//! Leases over permits in this process, for a server whose clients hold them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Beat, Ending, LeaseId, Owner, Slot, SlotStep, SlotTable};

use crate::hash::random_u128;
use crate::{BootClock, Clock};

/// What a desk holds for a client, and ends when the client is done, or gone.
pub trait Ends: Send {
    /// The work is over, and how.
    fn end(self, how: Ending);
}

impl<F: FnOnce(Ending) + Send> Ends for F {
    fn end(self, how: Ending) {
        self(how);
    }
}

/// Holds permits for clients that are not in this process, each under a lease.
///
/// A client that falls silent for a lease's life loses its permit, which then ends as [`Ending::Dropped`]. Leases are
/// named at random and bound to their owner: who does not know the name, or is another, neither renews nor releases one,
/// and is told the same as if there were none.
///
/// Every call ends what is over first; where none comes, whoever drives the desk calls [`expire`](Self::expire) at
/// [`next_expiry`](Self::next_expiry).
pub struct SlotDesk<T, C = BootClock> {
    leases: Mutex<Leases<T>>,
    clock: C,
    lives: Duration,
    leases_max: u32,
}

struct Leases<T> {
    table: SlotTable,
    permits: HashMap<(LeaseId, Owner), T>,
}

impl<T: Ends> SlotDesk<T> {
    /// A desk that holds up to `leases_max` permits, each for as long as `lives` says after it was last heard of. It never
    /// holds more than [`SLOTS_MAX`](throttlekit_core::concurrency::SLOTS_MAX), however many are asked for here.
    pub fn new(leases_max: u32, lives: Duration) -> Self {
        Self::with_clock(leases_max, lives, BootClock)
    }
}

impl<T: Ends, C: Clock> SlotDesk<T, C> {
    /// The same by another clock.
    pub fn with_clock(leases_max: u32, lives: Duration, clock: C) -> Self {
        let leases = Leases { table: SlotTable::default(), permits: HashMap::new() };
        Self { leases: Mutex::new(leases), clock, lives, leases_max }
    }

    /// A desk that admits nobody for one life: one that held permits before may have been lost, and whoever holds those
    /// has stopped by then.
    pub fn recovering(self) -> Self {
        let until = self.clock.now() + self.lives;
        let leases = Leases { table: SlotTable::recovering(until), permits: HashMap::new() };
        Self { leases: Mutex::new(leases), ..self }
    }

    /// Holds a permit for an owner, and says under which name and for how long. Or gives it back, if there are too many or
    /// the desk is still quiet.
    pub fn admit(&self, owner: Owner, permit: T) -> Result<(LeaseId, Slot), T> {
        let lease = LeaseId(random_u128());
        self.at_desk(|leases, now| {
            match leases.table.acquire(lease, owner, self.leases_max, self.lives, now) {
                SlotStep::Admit { slot, .. } => {
                    leases.permits.insert((lease, owner), permit);
                    Ok((lease, slot))
                }
                SlotStep::Deny(_) => Err(permit),
            }
        })
    }

    /// Lets an owner's leases live as long again, and says of each whether it does.
    pub fn heartbeat(&self, owner: Owner, leases: &[LeaseId]) -> Vec<Beat> {
        self.at_desk(|desk, now| desk.table.heartbeat(leases, owner, self.lives, now))
    }

    /// The owner's work is over. Says whether it held the lease; the second time it does not.
    pub fn release(&self, owner: Owner, lease: LeaseId, how: Ending) -> bool {
        self.take(owner, lease).map(|permit| permit.end(how)).is_some()
    }

    /// The owner's work is over, and how is said to the permit itself. Nothing, if it does not hold the lease.
    pub fn take(&self, owner: Owner, lease: LeaseId) -> Option<T> {
        self.at_desk(|leases, now| {
            leases.table.release(lease, owner, now);
            leases.permits.remove(&(lease, owner))
        })
    }

    /// What is held under an owner's lease, which stays as it is.
    pub fn find(&self, owner: Owner, lease: LeaseId) -> Option<T>
    where
        T: Clone,
    {
        self.at_desk(|leases, _| leases.permits.get(&(lease, owner)).cloned())
    }

    /// Takes everything that is held: whoever drives the desk is about to stop.
    pub fn drain(&self) -> Vec<T> {
        self.at_desk(|leases, now| {
            let all: Vec<_> = leases.permits.drain().collect();
            for ((lease, owner), _) in &all {
                leases.table.release(*lease, *owner, now);
            }
            all.into_iter().map(|(_, permit)| permit).collect()
        })
    }

    /// Ends the permits of whoever has fallen silent.
    pub fn expire(&self) {
        self.at_desk(|_, _| ());
    }

    /// Does something at one instant, at which no lease is over that is still there: those are ended as dropped.
    fn at_desk<R>(&self, work: impl FnOnce(&mut Leases<T>, Timestamp) -> R) -> R {
        let mut leases = self.leases();
        let now = self.clock.now();
        let over = leases.table.expire(now);
        let lost: Vec<T> = over.iter().filter_map(|lease| leases.permits.remove(lease)).collect();
        let answer = work(&mut leases, now);
        drop(leases);
        // Away from the desk: what a permit does when it ends is its own affair.
        lost.into_iter().for_each(|permit| permit.end(Ending::Dropped));
        answer
    }

    /// When the next lease is over if nobody beats.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.leases().table.next_expiry()
    }

    /// How many permits are held.
    pub fn held(&self) -> usize {
        self.leases().permits.len()
    }

    /// How many permits are held that are so. Looks at all of them.
    pub fn count(&self, mut so: impl FnMut(&T) -> bool) -> usize {
        self.leases().permits.values().filter(|permit| so(permit)).count()
    }

    /// Nothing under it runs code of others, so a panic leaves nothing half done.
    fn leases(&self) -> MutexGuard<'_, Leases<T>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, C> std::fmt::Debug for SlotDesk<T, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotDesk")
            .field("leases_max", &self.leases_max)
            .field("lives", &self.lives)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
